// A Go library that speaks to hosts in place of HTTP, built with the newest SDK: older ones know nothing of it.
package main

import (
	"fmt"
	"sort"
	"strings"

	xds "github.com/cncf/xds/go/xds/type/v3"
	"github.com/envoyproxy/envoy/contrib/golang/common/go/api"
	bridge "github.com/envoyproxy/envoy/contrib/golang/upstreams/http/tcp/source/go/pkg/upstreams/http/tcp"
	"google.golang.org/protobuf/types/known/anypb"
)

func init() {
	bridge.RegisterHttpTcpBridgeFactoryAndConfigParser("script", factory, parser{})
}

func main() {}

type parser struct{}

func (parser) Parse(config *anypb.Any) (any, error) {
	typed := &xds.TypedStruct{}
	if config.GetTypeUrl() != "" {
		if err := config.UnmarshalTo(typed); err != nil {
			return nil, err
		}
	}
	fields := typed.Value.AsMap()
	if fields["panic"] != nil {
		panic("told to")
	}
	if fields["refuse"] != nil {
		return nil, fmt.Errorf("told to")
	}
	return fields, nil
}

func factory(config any, callbacks api.HttpTcpBridgeCallbackHandler) api.HttpTcpBridge {
	return &script{config: config.(map[string]any), callbacks: callbacks}
}

// Speaks of lines: `METHOD path`, the body, and, as the host answers, `STATUS name=value;… body`.
type script struct {
	config    map[string]any
	callbacks api.HttpTcpBridgeCallbackHandler
	do        string
	pieces    int
}

func (s *script) EncodeHeaders(header api.RequestHeaderMap, data api.BufferInstance, end bool) api.HttpTcpBridgeStatus {
	s.do, _ = header.Get("x-do")
	if s.config["half_close"] != nil {
		s.callbacks.SetSelfHalfCloseForUpstreamConn(true)
	}
	switch s.do {
	case "panic":
		panic("on purpose")
	case "answer":
		data.SetString("answered by itself\n")
		return api.HttpTcpBridgeEndStream
	case "fields":
		names := []string{}
		header.Range(func(name, value string) bool {
			names = append(names, name+"="+value)
			return true
		})
		sort.Strings(names)
		data.SetString(strings.Join(names, ","))
		return api.HttpTcpBridgeEndStream
	}
	greeting := fmt.Sprintf("%v %s %s %s %s %s\n", s.config["greeting"], header.Method(), header.Host(), header.Path(),
		s.callbacks.GetRouteName(), s.callbacks.GetVirtualClusterName())
	if err := data.AppendString(greeting); err != nil {
		panic(err)
	}
	if s.do == "whole" {
		return api.HttpTcpBridgeStopAndBuffer
	}
	return api.HttpTcpBridgeContinue
}

func (s *script) EncodeData(data api.BufferInstance, end bool) api.HttpTcpBridgeStatus {
	s.pieces++
	text := strings.ToUpper(data.String())
	if s.do == "whole" {
		text = fmt.Sprintf("%d %d:%s", s.pieces, data.Len(), text)
	}
	if end {
		text += "\n"
	}
	data.SetString(text)
	return api.HttpTcpBridgeContinue
}

// Waits for a whole line, unless it is to pass pieces on.
func (s *script) OnUpstreamData(header api.ResponseHeaderMap, data api.BufferInstance, end bool) api.HttpTcpBridgeStatus {
	text := data.String()
	if s.do == "stream" {
		data.PrependString("<")
		data.AppendString(">")
		return api.HttpTcpBridgeContinue
	}
	if !strings.HasSuffix(text, "\n") && !end {
		header.Set("x-waited", "yes")
		return api.HttpTcpBridgeStopAndBuffer
	}
	status, rest, _ := strings.Cut(text, " ")
	fields, body, _ := strings.Cut(rest, " ")
	header.Set(":status", status)
	for _, field := range strings.Split(fields, ";") {
		if name, value, found := strings.Cut(field, "="); found {
			header.Add(name, value)
		}
	}
	header.Set("x-gone", "1")
	header.Del("x-gone")
	if seen, _ := header.Status(); s.do == "late" {
		body = fmt.Sprintf("%d %s", seen, body)
	}
	data.SetString(body)
	return api.HttpTcpBridgeEndStream
}

func (s *script) OnDestroy() { api.LogInfof("script: bridge destroyed %s", s.do) }
