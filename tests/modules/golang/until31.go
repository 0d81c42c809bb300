//go:build sdk31

package main

import "github.com/envoyproxy/envoy/contrib/golang/common/go/api"

// This SDK shows a log no headers.
func (s *script) OnLog() {
	if _, wanted := s.config.fields["log"]; !wanted {
		return
	}
	api.LogCriticalf("script: log")
	s.run("log", place{})
}

func (s *script) OnLogDownstreamStart() {
	if _, wanted := s.config.fields["log"]; wanted {
		api.LogCriticalf("script: start")
	}
}

func (s *script) OnLogDownstreamPeriodic() {
	if _, wanted := s.config.fields["log"]; wanted {
		api.LogCriticalf("script: meanwhile")
		s.run("meanwhile", place{})
	}
}
