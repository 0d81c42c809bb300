package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/envoyproxy/envoy/contrib/golang/common/go/api"
	"google.golang.org/protobuf/types/known/anypb"
)

// A filter that does what its configuration says: under the name of each phase, a list of operations. `async` names the
// phases that do so on a goroutine, `status` what they answer.
type script struct {
	config    *scriptConfig
	callbacks api.FilterCallbackHandler
	trace     []string
	// A goroutine has let its message go on.
	wentOn atomic.Bool
}

// A stream that others look at.
var remembered atomic.Pointer[script]

type scriptConfig struct {
	fields  map[string]any
	metrics *metrics
	hoard   [][]byte
}

type metrics struct {
	counter   api.CounterMetric
	gauge     api.GaugeMetric
	histogram api.HistogramMetric
}

type scripts struct{}

func (scripts) Parse(config *anypb.Any, callbacks api.ConfigCallbackHandler) (any, error) {
	fields, err := read(config)
	if err != nil {
		return nil, err
	}
	parsed := &scriptConfig{fields: fields}
	if prefix, ok := fields["metrics"].(string); ok && callbacks != nil {
		parsed.metrics = &metrics{
			counter: callbacks.DefineCounterMetric(prefix + ".counter"),
			gauge:   callbacks.DefineGaugeMetric(prefix + ".gauge"),
		}
	}
	return parsed, nil
}

func (scripts) Merge(parent, child any) any {
	from, to := parent.(*scriptConfig), child.(*scriptConfig)
	return &scriptConfig{fields: merge(from.fields, to.fields), metrics: from.metrics}
}

func newScript(config any, callbacks api.FilterCallbackHandler) api.StreamFilter {
	return &script{config: config.(*scriptConfig), callbacks: callbacks}
}

// Where an operation leaves what it found.
type place struct {
	header api.HeaderMap
	buffer api.BufferInstance
	side   api.FilterProcessCallbacks
}

func (p place) put(key, value string) {
	switch {
	case p.header != nil:
		p.header.Set(key, value)
	case p.buffer != nil:
		p.buffer.AppendString(key + "=" + value + ";")
	default:
		api.LogCriticalf("script: %s=%s", key, value)
	}
}

func (s *script) phase(name string, at place, end bool) api.StatusType {
	status := s.status(name, end)
	if status == api.StopAndBuffer && !end && at.buffer != nil {
		return status
	}
	// Where nothing follows a head, only who says so waits for it.
	if waits, _ := s.config.fields["waits_at_end"].(bool); end && !(waits && strings.HasSuffix(name, "_headers")) {
		status = api.Continue
	}
	if !s.isAsync(name) {
		if s.run(name, at) {
			return api.LocalReply
		}
		return status
	}
	go func() {
		defer at.side.RecoverPanic()
		if !s.run(name, at) {
			at.side.Continue(status)
		}
		s.wentOn.Store(true)
	}()
	return api.Running
}

func (s *script) status(name string, end bool) api.StatusType {
	statuses, _ := s.config.fields["status"].(map[string]any)
	switch statuses[name] {
	case "stop_and_buffer":
		return api.StopAndBuffer
	case "stop_and_buffer_watermark":
		return api.StopAndBufferWatermark
	case "stop_no_buffer":
		return api.StopNoBuffer
	}
	return api.Continue
}

func (s *script) isAsync(name string) bool {
	phases, _ := s.config.fields["async"].([]any)
	for _, phase := range phases {
		if phase == name {
			return true
		}
	}
	return false
}

// Whether the file is there that a test makes.
func released(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Whether the request was answered.
func (s *script) run(name string, at place) bool {
	operations, _ := s.config.fields[name].([]any)
	for _, operation := range operations {
		if s.operate(operation.(map[string]any), at) {
			return true
		}
	}
	return false
}

func (s *script) operate(operation map[string]any, at place) bool {
	text := func(key string) string { value, _ := operation[key].(string); return value }
	number := func(key string) int { value, _ := operation[key].(float64); return int(value) }
	key, value, to := text("key"), text("value"), text("to")
	info := s.callbacks.StreamInfo()
	switch text("op") {
	case "set":
		at.header.Set(key, value)
	case "add":
		at.header.Add(key, value)
	case "del":
		at.header.Del(key)
	case "get":
		found, ok := at.header.Get(key)
		at.put(to, fmt.Sprintf("%s,%t", found, ok))
	case "raw":
		at.put(to, at.header.GetRaw(key))
	case "values":
		at.put(to, strings.Join(at.header.Values(key), "|"))
	case "names":
		names := []string{}
		at.header.Range(func(name, _ string) bool { names = append(names, name); return true })
		sort.Strings(names)
		at.put(to, strings.Join(names, "|"))
	case "reply":
		headers := map[string][]string{}
		if key != "" {
			headers[key] = []string{value, "", value + "2"}
		}
		at.side.SendLocalReply(number("code"), text("body"), headers, int64(number("grpc")), text("details"))
		return true
	case "panic":
		panic(value)
	case "exit":
		os.Exit(number("code"))
	case "fatal":
		// What Go's runtime ends the process for; nothing recovers it.
		(&sync.Mutex{}).Unlock()
	case "hold":
		for !released(value) {
			runtime.Gosched()
		}
	case "release":
		// Whoever holds on to it goes on before this returns.
		if err := os.WriteFile(value, nil, 0o600); err != nil {
			panic(err)
		}
		for !s.wentOn.Load() {
			runtime.Gosched()
		}
	case "write":
		if err := os.WriteFile(value, nil, 0o600); err != nil {
			panic(err)
		}
	case "background":
		// Goes on when the message has, and whatever becomes of it.
		go func() {
			operations, _ := operation["do"].([]any)
			for _, operation := range operations {
				s.operate(operation.(map[string]any), place{})
			}
		}()
	case "continue":
		// More often than there is a phase to end. Whoever waits for the file goes on behind that.
		for range number("times") {
			at.side.Continue(api.Continue)
		}
		if err := os.WriteFile(value, nil, 0o600); err != nil {
			panic(err)
		}
		return true
	case "remember":
		remembered.Store(s)
	case "of_remembered":
		// Of another stream, from within a call of this one's.
		at.put(to, fmt.Sprint(remembered.Load().callbacks.StreamInfo().DynamicMetadata().Get(text("ns"))[key]))
	case "hoard":
		s.config.hoard = append(s.config.hoard, make([]byte, number("bytes")))
		for last := s.config.hoard[len(s.config.hoard)-1]; len(last) > 0; last = last[min(4096, len(last)):] {
			last[0] = 1
		}
	case "free":
		for range 3 {
			debug.FreeOSMemory()
		}
	case "metadata_set":
		info.DynamicMetadata().Set(text("ns"), key, operation["value"])
	case "metadata_get":
		at.put(to, fmt.Sprint(info.DynamicMetadata().Get(text("ns"))[key]))
	case "state_set":
		sharing := api.StreamSharing(number("sharing"))
		kind, span := api.StateTypeMutable, api.LifeSpanRequest
		if operation["read_only"] != nil {
			kind = api.StateTypeReadOnly
		}
		if operation["span"] != nil {
			span = api.LifeSpan(number("span"))
		}
		info.FilterState().SetString(key, value, kind, span, sharing)
	case "state_get":
		at.put(to, info.FilterState().GetString(key))
	case "property":
		found, err := s.callbacks.GetProperty(key)
		if err != nil {
			found = "error: " + err.Error()
		}
		at.put(to, found)
	case "info":
		at.put(to, s.info(key))
	case "clear_route":
		s.callbacks.ClearRouteCache()
	case "replace":
		at.buffer.SetString(value)
	case "append":
		at.buffer.AppendString(value)
	case "prepend":
		at.buffer.PrependString(value)
	case "drain":
		at.buffer.Drain(number("count"))
	case "reset":
		at.buffer.Reset()
	case "upper":
		at.buffer.SetString(strings.ToUpper(at.buffer.String()))
	case "length":
		at.put(to, strconv.Itoa(at.buffer.Len()))
	case "count":
		s.config.metrics.counter.Increment(int64(number("by")))
	case "counted":
		at.put(to, strconv.FormatUint(s.config.metrics.counter.Get(), 10))
	case "gauge":
		s.config.metrics.gauge.Record(uint64(number("by")))
	case "gauge_add":
		s.config.metrics.gauge.Increment(int64(number("by")))
	case "log":
		s.callbacks.Log(api.Critical, value)
	case "trace":
		s.trace = append(s.trace, value)
	case "traced":
		at.put(to, strings.Join(s.trace, ","))
	default:
		if !s.operateSince33(text("op"), value, at) {
			s.operateNew(text("op"), operation, at)
		}
	}
	return false
}

func (s *script) info(key string) string {
	info := s.callbacks.StreamInfo()
	optional := func(value string, ok bool) string { return fmt.Sprintf("%s,%t", value, ok) }
	switch key {
	case "route":
		return info.GetRouteName()
	case "chain":
		return info.FilterChainName()
	case "protocol":
		return optional(info.Protocol())
	case "code":
		code, ok := info.ResponseCode()
		return fmt.Sprintf("%d,%t", code, ok)
	case "details":
		return optional(info.ResponseCodeDetails())
	case "attempts":
		return fmt.Sprint(info.AttemptCount())
	case "local":
		return info.DownstreamLocalAddress()
	case "remote":
		return info.DownstreamRemoteAddress()
	case "upstream_local":
		return optional(info.UpstreamLocalAddress())
	case "upstream_remote":
		return optional(info.UpstreamRemoteAddress())
	case "cluster":
		return optional(info.UpstreamClusterName())
	case "virtual_cluster":
		return optional(info.VirtualClusterName())
	}
	return "?"
}

func (s *script) DecodeHeaders(header api.RequestHeaderMap, end bool) api.StatusType {
	return s.phase("decode_headers", place{header: header, side: s.callbacks.DecoderFilterCallbacks()}, end)
}

func (s *script) DecodeData(buffer api.BufferInstance, end bool) api.StatusType {
	return s.phase("decode_data", place{buffer: buffer, side: s.callbacks.DecoderFilterCallbacks()}, end)
}

func (s *script) DecodeTrailers(trailers api.RequestTrailerMap) api.StatusType {
	return s.phase("decode_trailers", place{header: trailers, side: s.callbacks.DecoderFilterCallbacks()}, true)
}

func (s *script) EncodeHeaders(header api.ResponseHeaderMap, end bool) api.StatusType {
	return s.phase("encode_headers", place{header: header, side: s.callbacks.EncoderFilterCallbacks()}, end)
}

func (s *script) EncodeData(buffer api.BufferInstance, end bool) api.StatusType {
	return s.phase("encode_data", place{buffer: buffer, side: s.callbacks.EncoderFilterCallbacks()}, end)
}

func (s *script) EncodeTrailers(trailers api.ResponseTrailerMap) api.StatusType {
	return s.phase("encode_trailers", place{header: trailers, side: s.callbacks.EncoderFilterCallbacks()}, true)
}

func (s *script) OnStreamComplete() {
	s.run("complete", place{})
}

func (s *script) OnDestroy(reason api.DestroyReason) {
	if _, wanted := s.config.fields["destroy"]; wanted {
		api.LogCriticalf("script: destroyed %d", reason)
	}
}
