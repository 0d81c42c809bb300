package main

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/envoyproxy/envoy/contrib/golang/common/go/api"
	filters "github.com/envoyproxy/envoy/contrib/golang/filters/http/source/go/pkg/http"
)

// The plugins that are written for every runtime: ../README.md says what each does.
func init() {
	register("basic_auth", func(c common) api.StreamFilter { return &basicAuth{common: c} })
	register("headers", func(c common) api.StreamFilter { return &headers{common: c} })
	register("body", func(c common) api.StreamFilter { return &body{common: c} })
	register("callout", func(c common) api.StreamFilter { return &callout{common: c} })
	register("count", func(c common) api.StreamFilter { return &count{common: c} })
	register("villain", func(c common) api.StreamFilter { return &villain{common: c} })
}

func register(name string, create func(common) api.StreamFilter) {
	factory := func(config any, callbacks api.FilterCallbackHandler) api.StreamFilter {
		return create(common{callbacks: callbacks, config: config.(map[string]any)})
	}
	filters.RegisterHttpFilterFactoryAndConfigParser(name, factory, fields{})
}

type common struct {
	api.PassThroughStreamFilter
	callbacks api.FilterCallbackHandler
	config    map[string]any
}

func (c *common) text(key string) string {
	text, _ := c.config[key].(string)
	return text
}

func (c *common) answer(status int, text string, headers map[string][]string, details string) {
	c.callbacks.DecoderFilterCallbacks().SendLocalReply(status, text, headers, 0, details)
}

type basicAuth struct{ common }

func (f *basicAuth) DecodeHeaders(header api.RequestHeaderMap, _ bool) api.StatusType {
	known := base64.StdEncoding.EncodeToString([]byte(f.text("username") + ":" + f.text("password")))
	if given, _ := header.Get("authorization"); given != "Basic "+known {
		f.answer(401, "unauthorized\n", map[string][]string{"www-authenticate": {`Basic realm="postrider"`}}, "unknown_user")
		return api.LocalReply
	}
	header.Set("x-auth-user", f.text("username"))
	return api.Continue
}

type headers struct{ common }

func (f *headers) rename(header api.HeaderMap) {
	found := map[string][]string{}
	names := []string{}
	header.Range(func(name, value string) bool {
		if strings.HasPrefix(name, f.text("from")) {
			if found[name] == nil {
				names = append(names, name)
			}
			found[name] = append(found[name], value)
		}
		return true
	})
	sort.Strings(names)
	for _, name := range names {
		header.Del(name)
		for _, value := range found[name] {
			header.Add(f.text("to")+strings.TrimPrefix(name, f.text("from")), value)
		}
	}
}

func (f *headers) DecodeHeaders(header api.RequestHeaderMap, _ bool) api.StatusType {
	f.rename(header)
	return api.Continue
}

func (f *headers) EncodeHeaders(header api.ResponseHeaderMap, _ bool) api.StatusType {
	f.rename(header)
	return api.Continue
}

type body struct{ common }

// A body is shown whole where its head is held; a plugin that holds only pieces is shown each once.
func hold(header api.HeaderMap, end bool) api.StatusType {
	if end {
		return api.Continue
	}
	header.Del("content-length")
	return api.StopAndBuffer
}

func (f *body) rewrite(buffer api.BufferInstance) api.StatusType {
	rewritten := bytes.ReplaceAll(buffer.Bytes(), []byte(f.text("find")), []byte(f.text("replace")))
	if err := buffer.Set(rewritten); err != nil {
		api.LogError(err.Error())
	}
	return api.Continue
}

func (f *body) DecodeHeaders(header api.RequestHeaderMap, end bool) api.StatusType {
	return hold(header, end)
}

func (f *body) DecodeData(buffer api.BufferInstance, _ bool) api.StatusType { return f.rewrite(buffer) }

func (f *body) EncodeHeaders(header api.ResponseHeaderMap, end bool) api.StatusType {
	return hold(header, end)
}

func (f *body) EncodeData(buffer api.BufferInstance, _ bool) api.StatusType { return f.rewrite(buffer) }

// Go plugins make their calls by themselves: to `address`, where others name the cluster.
type callout struct{ common }

var client = &http.Client{Timeout: 5 * time.Second}

func (f *callout) DecodeHeaders(header api.RequestHeaderMap, _ bool) api.StatusType {
	path := header.Path()
	go func() {
		defer f.callbacks.DecoderFilterCallbacks().RecoverPanic()
		status, text := f.ask(path)
		if status != http.StatusOK {
			f.answer(403, "denied by "+strconv.Itoa(status)+"\n", nil, "denied")
			return
		}
		if text != "" {
			header.Set("x-callout", text)
		}
		f.callbacks.DecoderFilterCallbacks().Continue(api.Continue)
	}()
	return api.Running
}

func (f *callout) ask(path string) (int, string) {
	question, err := http.NewRequest(http.MethodGet, "http://"+f.text("address")+f.text("path"), nil)
	if err != nil {
		return http.StatusServiceUnavailable, ""
	}
	question.Host = f.text("cluster")
	question.Header.Set("x-original-path", path)
	answer, err := client.Do(question)
	if err != nil {
		return http.StatusServiceUnavailable, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return http.StatusServiceUnavailable, ""
	}
	return answer.StatusCode, string(text)
}

type count struct {
	common
	bytes int
}

func (f *count) DecodeData(buffer api.BufferInstance, _ bool) api.StatusType {
	f.bytes += buffer.Len()
	return api.Continue
}

func (f *count) EncodeHeaders(header api.ResponseHeaderMap, _ bool) api.StatusType {
	header.Set("x-request-bytes", strconv.Itoa(f.bytes))
	return api.Continue
}

func (f *count) EncodeData(api.BufferInstance, bool) api.StatusType { return api.Continue }

// Where nothing could end it, a loop runs on a goroutine, and until its stream is over. In a process of its own it keeps the
// thread that called it, and memory may be hoarded, too: `forever` says that it is there.
type villain struct {
	common
	over atomic.Bool
}

// So many MiB are enough.
const most = 512

func (f *villain) DecodeHeaders(header api.RequestHeaderMap, _ bool) api.StatusType {
	switch f.text("do") {
	case "error":
		panic("on purpose")
	case "loop":
		if f.text("forever") != "" {
			for {
			}
		}
		go func() {
			for !f.over.Load() {
			}
		}()
		return api.Running
	case "hoard":
		var hoard [][]byte
		for f.text("forever") != "" {
			if len(hoard) == most {
				continue
			}
			piece := make([]byte, 1<<20)
			for at := 0; at < len(piece); at += 4096 {
				piece[at] = 1
			}
			hoard = append(hoard, piece)
		}
	}
	header.Set("x-done", "yes")
	return api.Continue
}

func (f *villain) OnDestroy(api.DestroyReason) { f.over.Store(true) }
