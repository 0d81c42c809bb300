// Lines shouts what a client sends and counts it, as a filter of connections.
package main

import (
	"bytes"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

func init() {
	proxywasm.SetPluginContext(func(uint32) types.PluginContext { return &plugin{} })
}

type plugin struct {
	types.DefaultPluginContext
	bytes, ends proxywasm.MetricCounter
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	p.bytes = proxywasm.DefineCounterMetric("lines.bytes")
	p.ends = proxywasm.DefineCounterMetric("lines.ends")
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewTcpContext(uint32) types.TcpContext { return &connection{plugin: p} }

type connection struct {
	types.DefaultTcpContext
	plugin *plugin
}

func (c *connection) OnDownstreamData(size int, _ bool) types.Action {
	if size == 0 {
		return types.ActionContinue
	}
	data, err := proxywasm.GetDownstreamData(0, size)
	if err == nil {
		err = proxywasm.ReplaceDownstreamData(bytes.ToUpper(data))
	}
	if err != nil {
		proxywasm.LogError(err.Error())
	}
	c.plugin.bytes.Increment(uint64(size))
	return types.ActionContinue
}

func (c *connection) OnDownstreamClose(types.PeerType) { c.plugin.ends.Increment(1) }
