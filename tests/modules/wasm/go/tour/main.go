// Tour calls every function of the host once, and tells what came of each: `x-tour` of the answer names them in their order.
package main

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"postrider.dev/tests/modules/wasm/settings"
)

// For the services' answers.
const timeoutMilliseconds = 5000

// The functions that the SDK has no words for.

//go:wasmimport env proxy_get_current_time_nanoseconds
func currentTime(out *uint64) uint32

//go:wasmimport env proxy_get_header_map_size
func mapSize(kind uint32, out *uint32) uint32

//go:wasmimport env proxy_get_buffer_status
func bufferStatus(kind uint32, length, flags *uint32) uint32

//go:wasmimport env proxy_get_buffer_bytes
func bufferBytes(kind, start, most uint32, at, length *uint32) uint32

//go:wasmimport env proxy_close_stream
func closeStream(kind uint32) uint32

//go:wasmimport env proxy_done
func done() uint32

//go:wasmimport env proxy_get_status
func getStatus(code, at, length *uint32) uint32

//go:wasmimport env proxy_grpc_call
func grpcCall(upstream, service, method, metadata, message string, timeout uint32, out *uint32) uint32

//go:wasmimport env proxy_grpc_stream
func grpcStream(upstream, service, method, metadata string, out *uint32) uint32

//go:wasmimport env proxy_grpc_send
func grpcSend(token uint32, message string, end uint32) uint32

//go:wasmimport env proxy_grpc_cancel
func grpcCancel(token uint32) uint32

//go:wasmimport env proxy_grpc_close
func grpcClose(token uint32) uint32

func main() {}

func init() {
	proxywasm.SetPluginContext(func(uint32) types.PluginContext { return &plugin{} })
}

type plugin struct {
	types.DefaultPluginContext
	service, grpc  string
	queue          uint32
	counter        proxywasm.MetricCounter
	gauge          proxywasm.MetricGauge
	histogram      proxywasm.MetricHistogram
	ticked, queued string
}

// The tour under way, and where its calls of gRPC are.
var (
	current            *stream
	unary, talk, other uint32
)

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	values, err := settings.Read("service", "grpc")
	if err != nil {
		proxywasm.LogCritical(err.Error())
		return types.OnPluginStartStatusFailed
	}
	p.service, p.grpc = values[0], values[1]
	p.queue, err = proxywasm.RegisterSharedQueue("tour")
	p.counter = proxywasm.DefineCounterMetric("tour_counter")
	p.gauge = proxywasm.DefineGaugeMetric("tour_gauge")
	p.histogram = proxywasm.DefineHistogramMetric("tour_histogram")
	if err != nil || proxywasm.SetTickPeriodMilliSeconds(10) != nil {
		return types.OnPluginStartStatusFailed
	}
	return types.OnPluginStartStatusOK
}

func (p *plugin) OnTick() { p.ticked = "ticked" }

func (p *plugin) OnQueueReady(queue uint32) {
	message, err := proxywasm.DequeueSharedQueue(queue)
	p.queued = text(message, err)
}

func (p *plugin) NewHttpContext(id uint32) types.HttpContext { return &stream{plugin: p, id: id} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
	id     uint32
	found  []string
}

func (s *stream) tell(function, result string) { s.found = append(s.found, function+"="+result) }

func text(bytes []byte, err error) string {
	if err != nil {
		return "error"
	}
	return string(bytes)
}

func ok(err error) string { return text([]byte("ok"), err) }

func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	path, _ := proxywasm.GetHttpRequestHeader(":path")
	switch path {
	case "/answer":
		_ = proxywasm.SendHttpResponse(418, [][2]string{{"x-answered", "yes"}}, []byte("teapot"), -1)
		return types.ActionPause
	case "/close":
		closeStream(0)
		return types.ActionPause
	}
	current = s
	s.values()
	s.fields()
	s.shared()
	question := [][2]string{{":method", "GET"}, {":path", "/asked"}, {":authority", s.plugin.service}}
	_, err := proxywasm.DispatchHttpCall(s.plugin.service, question, []byte("body"), nil, timeoutMilliseconds, s.answered)
	s.tell("http_call", ok(err))
	return types.ActionPause
}

func (s *stream) values() {
	proxywasm.LogInfo("a tour")
	s.tell("log", "ok")
	var now uint64
	s.tell("get_current_time_nanoseconds", fmt.Sprint(currentTime(&now) == 0 && now > 1_000_000_000_000_000_000))
	name, err := proxywasm.GetProperty([]string{"plugin_name"})
	s.tell("get_property", text(name, err))
	s.tell("set_property", ok(proxywasm.SetProperty([]string{"toured"}, []byte("yes"))))
	s.tell("done", fmt.Sprint(done()))
	_, err = proxywasm.CallForeignFunction("clear_route_cache", []byte("x"))
	s.tell("call_foreign_function", ok(err))
	before := s.plugin.counter.Value()
	s.plugin.counter.Increment(3)
	s.plugin.gauge.Add(5)
	s.plugin.histogram.Record(7)
	s.tell("get_metric", fmt.Sprint(s.plugin.counter.Value()-before))
}

func (s *stream) fields() {
	value, err := proxywasm.GetHttpRequestHeader("x-a")
	s.tell("get_header_map_value", text([]byte(value), err))
	_ = proxywasm.ReplaceHttpRequestHeader("x-a", "2")
	_ = proxywasm.AddHttpRequestHeader("x-added", "1")
	_ = proxywasm.RemoveHttpRequestHeader("x-b")
	pairs, err := proxywasm.GetHttpRequestHeaders()
	var names []string
	for _, pair := range pairs {
		if strings.HasPrefix(pair[0], "x-a") || pair[0] == "x-b" {
			names = append(names, pair[0]+":"+pair[1])
		}
	}
	s.tell("get_header_map_pairs", text([]byte(strings.Join(names, "+")), err))
	var size uint32
	s.tell("get_header_map_size", fmt.Sprint(mapSize(0, &size) == 0 && size > 10))
}

func (s *stream) shared() {
	_, cas, _ := proxywasm.GetSharedData("tour")
	s.tell("set_shared_data", ok(proxywasm.SetSharedData("tour", []byte("kept"), cas)))
	kept, _, err := proxywasm.GetSharedData("tour")
	s.tell("get_shared_data", text(kept, err))
	vm, _ := proxywasm.GetProperty([]string{"plugin_vm_id"})
	queue, err := proxywasm.ResolveSharedQueue(string(vm), "tour")
	s.tell("resolve_shared_queue", fmt.Sprint(err == nil && queue == s.plugin.queue))
	s.tell("enqueue_shared_queue", ok(proxywasm.EnqueueSharedQueue(queue, []byte("message"))))
}

func (s *stream) answered(int, int, int) {
	body, err := proxywasm.GetHttpCallResponseBody(0, 100)
	s.tell("get_buffer_bytes", text(body, err))
	s.tell("grpc_call", fmt.Sprint(grpcCall(s.plugin.grpc, "echo", "Say", "", "hello", timeoutMilliseconds, &unary)))
}

func received() string {
	var at, length uint32
	if bufferBytes(5, 0, 100, &at, &length) != 0 {
		return "error"
	}
	return unsafe.String((*byte)(unsafe.Pointer(uintptr(at))), length)
}

//go:wasmexport proxy_on_grpc_receive
func grpcReceived(root, token, size uint32) {
	s := current
	if token == unary {
		s.tell("on_grpc_receive", received())
		s.tell("grpc_stream", fmt.Sprint(grpcStream(s.plugin.grpc, "echo", "Talk", "", &talk)))
		s.tell("grpc_send", fmt.Sprint(grpcSend(talk, "again", 0)))
		return
	}
	s.tell("on_grpc_receive", received())
	grpcStream(s.plugin.grpc, "echo", "Talk", "", &other)
	s.tell("grpc_cancel", fmt.Sprint(grpcCancel(other)))
	s.tell("grpc_close", fmt.Sprint(grpcClose(talk)))
	_ = root
	_ = size
}

//go:wasmexport proxy_on_grpc_close
func grpcClosed(root, token, status uint32) {
	s := current
	if token != talk || s == nil {
		return
	}
	var code, at, length uint32
	known := getStatus(&code, &at, &length)
	s.tell("get_status", fmt.Sprint(known, code == status))
	s.tell("set_effective_context", ok(proxywasm.SetEffectiveContext(s.id)))
	s.tell("continue_stream", ok(proxywasm.ResumeHttpRequest()))
	_ = root
}

func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	_ = proxywasm.RemoveHttpResponseHeader("content-length")
	s.tell("set_tick_period_milliseconds", s.plugin.ticked)
	s.tell("dequeue_shared_queue", s.plugin.queued)
	pairs, _ := proxywasm.GetHttpResponseHeaders()
	s.tell("set_header_map_pairs", ok(proxywasm.ReplaceHttpResponseHeaders(append(pairs, [2]string{"x-set", "3"}))))
	_ = proxywasm.ReplaceHttpResponseHeader("x-tour", strings.Join(s.found, " "))
	return types.ActionContinue
}

func (s *stream) OnHttpResponseBody(size int, end bool) types.Action {
	if !end {
		return types.ActionPause
	}
	var length, flags uint32
	known := bufferStatus(1, &length, &flags)
	_ = proxywasm.ReplaceHttpResponseBody([]byte(fmt.Sprint("get_buffer_status=", known, length > 0)))
	return types.ActionContinue
}
