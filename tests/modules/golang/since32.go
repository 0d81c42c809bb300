//go:build !sdk31

package main

import (
	"strconv"

	"github.com/envoyproxy/envoy/contrib/golang/common/go/api"
)

func (s *script) OnLog(request api.RequestHeaderMap, _ api.RequestTrailerMap, response api.ResponseHeaderMap, _ api.ResponseTrailerMap) {
	if _, wanted := s.config.fields["log"]; !wanted {
		return
	}
	path := request.Path()
	status := "none"
	if response != nil {
		code, _ := response.Status()
		status = strconv.Itoa(code)
	}
	api.LogCriticalf("script: log %s %s", path, status)
	s.run("log", place{})
}

func (s *script) OnLogDownstreamStart(request api.RequestHeaderMap) {
	if _, wanted := s.config.fields["log"]; wanted {
		api.LogCriticalf("script: start %s", request.Path())
	}
}

func (s *script) OnLogDownstreamPeriodic(request api.RequestHeaderMap, _ api.RequestTrailerMap, response api.ResponseHeaderMap, _ api.ResponseTrailerMap) {
	if _, wanted := s.config.fields["log"]; !wanted {
		return
	}
	names := 0
	request.Range(func(_, _ string) bool { names++; return true })
	api.LogCriticalf("script: meanwhile %s, %t answered, %t", request.Path(), response != nil, names > 3)
	s.run("meanwhile", place{})
}
