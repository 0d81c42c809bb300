// Villain does what its configuration says that plugins must not do; else it marks the request.
package main

import (
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
	what  string
	hoard [][]byte
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	values, err := settings.Read("do")
	if err != nil {
		proxywasm.LogCritical(err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.what = values[0]
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	switch s.plugin.what {
	case "error":
		panic("on purpose")
	case "loop":
		for {
		}
	case "hoard":
		for {
			s.plugin.hoard = append(s.plugin.hoard, make([]byte, 1<<20))
		}
	}
	if err := proxywasm.ReplaceHttpRequestHeader("x-done", "yes"); err != nil {
		proxywasm.LogError(err.Error())
	}
	return types.ActionContinue
}
