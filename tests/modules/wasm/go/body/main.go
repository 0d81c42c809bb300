// Body replaces a text wherever it stands in the bodies of requests and responses.
package main

import (
	"bytes"

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
	find, replace []byte
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	values, err := settings.Read("find", "replace")
	if err != nil {
		proxywasm.LogCritical(err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.find, p.replace = []byte(values[0]), []byte(values[1])
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (s *stream) OnHttpRequestHeaders(_ int, end bool) types.Action {
	// The length will be another one.
	if !end {
		warn(proxywasm.RemoveHttpRequestHeader("content-length"))
	}
	return types.ActionContinue
}

func (s *stream) OnHttpRequestBody(size int, end bool) types.Action {
	// Held until it is whole; then `size` is all of it.
	if !end {
		return types.ActionPause
	}
	s.rewrite(size, proxywasm.GetHttpRequestBody, proxywasm.ReplaceHttpRequestBody)
	return types.ActionContinue
}

func (s *stream) OnHttpResponseHeaders(_ int, end bool) types.Action {
	if !end {
		warn(proxywasm.RemoveHttpResponseHeader("content-length"))
	}
	return types.ActionContinue
}

func (s *stream) OnHttpResponseBody(size int, end bool) types.Action {
	if !end {
		return types.ActionPause
	}
	s.rewrite(size, proxywasm.GetHttpResponseBody, proxywasm.ReplaceHttpResponseBody)
	return types.ActionContinue
}

func (s *stream) rewrite(size int, get func(int, int) ([]byte, error), replace func([]byte) error) {
	if size == 0 {
		return
	}
	body, err := get(0, size)
	warn(err)
	if err == nil {
		warn(replace(bytes.ReplaceAll(body, s.plugin.find, s.plugin.replace)))
	}
}

func warn(err error) {
	if err != nil {
		proxywasm.LogWarn(err.Error())
	}
}
