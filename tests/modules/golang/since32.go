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

func (s *script) OnLogDownstreamStart(api.RequestHeaderMap) {}

func (s *script) OnLogDownstreamPeriodic(api.RequestHeaderMap, api.RequestTrailerMap, api.ResponseHeaderMap, api.ResponseTrailerMap) {
}
