// A Go library that filters connections and opens connections of its own, built with the oldest and the newest SDK.
package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	xds "github.com/cncf/xds/go/xds/type/v3"
	"github.com/envoyproxy/envoy/contrib/golang/common/go/api"
	// The log, which filters of requests bring with them.
	_ "github.com/envoyproxy/envoy/contrib/golang/common/go/api_impl"
	"github.com/envoyproxy/envoy/contrib/golang/filters/network/source/go/pkg/network"
	"google.golang.org/protobuf/types/known/anypb"
)

func init() {
	network.RegisterNetworkFilterConfigParser(parser{})
	network.RegisterNetworkFilterConfigFactory("script", scripts{})
	network.RegisterNetworkFilterConfigFactory("relay", relays{})
}

func main() {}

type parser struct{}

func (parser) ParseConfig(config *anypb.Any) any {
	typed := &xds.TypedStruct{}
	if config.GetTypeUrl() != "" {
		if err := config.UnmarshalTo(typed); err != nil {
			panic(err)
		}
	}
	fields := typed.Value.AsMap()
	if fields["panic"] != nil {
		panic("told to")
	}
	return fields
}

type fields map[string]any

func (f fields) text(key string) string {
	text, _ := f[key].(string)
	return text
}

type scripts struct{}

func (scripts) CreateFactoryFromConfig(config any) network.FilterFactory {
	return scriptFactory{config.(map[string]any)}
}

type scriptFactory struct{ config fields }

func (f scriptFactory) CreateFilter(callback api.ConnectionCallback) api.DownstreamFilter {
	return &script{config: f.config, callback: callback}
}

// Does what the client says in lines, and remembers what else it saw.
type script struct {
	config   fields
	callback api.ConnectionCallback
	seen     bytes.Buffer
	events   []string
	rest     []byte
}

func (s *script) OnNewConnection() api.FilterStatus {
	if note := s.config.text("note"); note != "" {
		s.set("go.note", note)
	}
	if said := s.config.text("says"); said != "" {
		s.callback.Write([]byte(said), false)
	}
	return api.NetworkFilterContinue
}

func (s *script) set(key, value string) {
	s.callback.StreamInfo().FilterState().SetString(key, value, api.StateTypeMutable, api.LifeSpanConnection, api.None)
}

func (s *script) OnData(data []byte, end bool) api.FilterStatus {
	s.rest = append(s.rest, data...)
	for {
		line, rest, found := bytes.Cut(s.rest, []byte("\n"))
		if !found {
			break
		}
		s.rest = rest
		s.run(string(line))
	}
	if end {
		s.say("end")
	}
	return api.NetworkFilterContinue
}

func (s *script) OnWrite(data []byte, end bool) api.FilterStatus {
	s.seen.Write(data)
	if end {
		s.seen.WriteString("|")
	}
	if s.config.text("drops") != "" && bytes.Contains(data, []byte(s.config.text("drops"))) {
		return api.NetworkFilterStopIteration
	}
	return api.NetworkFilterContinue
}

func (s *script) OnEvent(event api.ConnectionEvent) {
	s.events = append(s.events, event.String())
	if event != api.Connected {
		api.LogCriticalf("script: %s", strings.Join(s.events, " "))
	}
}

func (s *script) say(text string) {
	s.callback.Write([]byte(text+"\n"), false)
}

func (s *script) run(line string) {
	verb, argument, _ := strings.Cut(line, " ")
	switch verb {
	case "echo":
		s.say(argument)
	case "later":
		go s.say(argument)
	case "local":
		local, _ := s.callback.StreamInfo().UpstreamLocalAddress()
		s.say(local)
	case "remote":
		remote, _ := s.callback.StreamInfo().UpstreamRemoteAddress()
		s.say(remote)
	case "seen":
		s.say(fmt.Sprintf("%q", s.seen.String()))
	case "large":
		s.callback.Write(bytes.Repeat([]byte("x"), 1_000_000), false)
	case "end":
		s.callback.Write([]byte(argument+"\n"), true)
	case "note":
		s.set("go.note", argument)
		s.say("noted")
	case "note-later":
		done := make(chan struct{})
		go func() {
			s.set("go.note", argument)
			close(done)
		}()
		<-done
		s.say("noted")
	case "close":
		s.say("bye")
		s.callback.Close(api.FlushWrite)
	case "abort":
		s.say("bye")
		s.callback.Close(api.Abort)
	case "reset":
		s.callback.Close(api.AbortReset)
	default:
		s.say("what?")
	}
}

type relays struct{}

func (relays) CreateFactoryFromConfig(config any) network.FilterFactory {
	return relayFactory{config.(map[string]any)}
}

type relayFactory struct{ config fields }

func (f relayFactory) CreateFilter(callback api.ConnectionCallback) api.DownstreamFilter {
	return &relay{config: f.config, client: callback}
}

// Carries a client's bytes to an address, in capitals, and brings back what comes, in brackets.
type relay struct {
	api.EmptyDownstreamFilter
	config   fields
	client   api.ConnectionCallback
	mutex    sync.Mutex
	upstream api.ConnectionCallback
	early    []byte
	over     bool
}

func (r *relay) OnNewConnection() api.FilterStatus {
	network.CreateUpstreamConn(r.config.text("to"), &far{relay: r})
	return api.NetworkFilterContinue
}

func (r *relay) OnData(data []byte, _ bool) api.FilterStatus {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.upstream == nil {
		r.early = append(r.early, data...)
	} else if len(data) > 0 {
		r.upstream.Write(bytes.ToUpper(data), false)
	}
	return api.NetworkFilterContinue
}

func (r *relay) OnEvent(event api.ConnectionEvent) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if event == api.Connected {
		return
	}
	r.over = true
	if r.upstream != nil {
		r.upstream.Close(api.NoFlush)
	}
}

// The other end of it.
type far struct {
	api.EmptyUpstreamFilter
	relay *relay
}

func (f *far) OnPoolReady(callback api.ConnectionCallback) {
	r := f.relay
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.over {
		callback.Close(api.NoFlush)
		return
	}
	if r.config["half"] == true {
		callback.EnableHalfClose(true)
	}
	if r.config["tell"] == true {
		local, _ := callback.StreamInfo().UpstreamLocalAddress()
		remote, _ := callback.StreamInfo().UpstreamRemoteAddress()
		r.client.Write([]byte(fmt.Sprintf("%s %s\n", local, remote)), false)
	}
	r.upstream = callback
	if len(r.early) > 0 {
		callback.Write(bytes.ToUpper(r.early), false)
	}
}

func (f *far) OnPoolFailure(reason api.PoolFailureReason, _ string) {
	f.relay.client.Write([]byte(fmt.Sprintf("failed %d\n", reason)), false)
	f.relay.client.Close(api.FlushWrite)
}

func (f *far) OnData(data []byte, end bool) {
	if len(data) > 0 {
		f.relay.client.Write([]byte("["+string(data)+"]"), false)
	}
	if end {
		f.relay.client.Write([]byte("[end]"), false)
	}
}

func (f *far) OnEvent(event api.ConnectionEvent) {
	f.relay.client.Write([]byte("("+event.String()+")"), false)
	f.relay.client.Close(api.FlushWrite)
}
