// Headers renames the header fields that begin in some way, of requests and of responses.
package main

import (
	"strings"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"postrider.dev/tests/modules/wasm/settings"
)

func main() {}

func init() {
	proxywasm.SetPluginContext(func(uint32) types.PluginContext { return &plugin{} })
}

type plugin struct {
	types.DefaultPluginContext
	from, to string
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	values, err := settings.Read("from", "to")
	if err != nil {
		proxywasm.LogCritical(err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.from, p.to = values[0], values[1]
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	s.rename(proxywasm.GetHttpRequestHeaders, proxywasm.RemoveHttpRequestHeader, proxywasm.AddHttpRequestHeader)
	return types.ActionContinue
}

func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	s.rename(proxywasm.GetHttpResponseHeaders, proxywasm.RemoveHttpResponseHeader, proxywasm.AddHttpResponseHeader)
	return types.ActionContinue
}

func (s *stream) rename(all func() ([][2]string, error), remove func(string) error, add func(string, string) error) {
	fields, err := all()
	if err != nil {
		proxywasm.LogError(err.Error())
		return
	}
	for _, field := range fields {
		rest, found := strings.CutPrefix(field[0], s.plugin.from)
		if !found {
			continue
		}
		if err := remove(field[0]); err != nil {
			proxywasm.LogError(err.Error())
		}
		if err := add(s.plugin.to+rest, field[1]); err != nil {
			proxywasm.LogError(err.Error())
		}
	}
}
