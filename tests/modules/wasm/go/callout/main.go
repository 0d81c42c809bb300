// Callout asks a service about each request: what it answers with 200 goes on, everything else is denied.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"postrider.dev/tests/modules/wasm/settings"
)

// For the service's answer.
const timeoutMilliseconds = 5000

func main() {}

func init() {
	proxywasm.SetPluginContext(func(uint32) types.PluginContext { return &plugin{} })
}

type plugin struct {
	types.DefaultPluginContext
	cluster, path string
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	values, err := settings.Read("cluster", "path")
	if err != nil {
		proxywasm.LogCritical(err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.cluster, p.path = values[0], values[1]
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	path, err := proxywasm.GetHttpRequestHeader(":path")
	if err != nil {
		proxywasm.LogError(err.Error())
	}
	question := [][2]string{
		{":method", "GET"}, {":path", s.plugin.path}, {":authority", s.plugin.cluster}, {"x-original-path", path},
	}
	if _, err := proxywasm.DispatchHttpCall(s.plugin.cluster, question, nil, nil, timeoutMilliseconds, answer); err != nil {
		deny(500, "no call\n")
	}
	return types.ActionPause
}

func answer(_, bodySize, _ int) {
	fields, err := proxywasm.GetHttpCallResponseHeaders()
	if err != nil {
		proxywasm.LogWarn(err.Error())
	}
	status := "no answer"
	for _, field := range fields {
		if field[0] == ":status" {
			status = field[1]
		}
	}
	if status != "200" {
		deny(403, "denied by "+status+"\n")
		return
	}
	if bodySize > 0 {
		if body, err := proxywasm.GetHttpCallResponseBody(0, bodySize); err == nil {
			err = proxywasm.ReplaceHttpRequestHeader("x-callout", string(body))
			if err != nil {
				proxywasm.LogError(err.Error())
			}
		}
	}
	if err := proxywasm.ResumeHttpRequest(); err != nil {
		proxywasm.LogError(err.Error())
	}
}

func deny(status uint32, text string) {
	if err := proxywasm.SendHttpResponse(status, nil, []byte(text), -1); err != nil {
		proxywasm.LogError(err.Error())
	}
}
