// Basic_auth lets one user in, who is known by name and password.
package main

import (
	"encoding/base64"
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
	username, credentials string
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	values, err := settings.Read("username", "password")
	if err != nil {
		proxywasm.LogCritical(err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.username, p.credentials = values[0], values[0]+":"+values[1]
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	if !s.plugin.knows() {
		challenge := [][2]string{{"www-authenticate", `Basic realm="postrider"`}}
		if err := proxywasm.SendHttpResponse(401, challenge, []byte("unauthorized\n"), -1); err != nil {
			proxywasm.LogError(err.Error())
		}
		return types.ActionPause
	}
	if err := proxywasm.ReplaceHttpRequestHeader("x-auth-user", s.plugin.username); err != nil {
		proxywasm.LogError(err.Error())
	}
	return types.ActionContinue
}

func (p *plugin) knows() bool {
	field, err := proxywasm.GetHttpRequestHeader("authorization")
	if err != nil {
		return false
	}
	encoded, found := strings.CutPrefix(field, "Basic ")
	if !found {
		return false
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	return err == nil && string(decoded) == p.credentials
}
