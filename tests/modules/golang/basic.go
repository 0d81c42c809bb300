package main

import (
	"encoding/base64"
	"strings"

	"github.com/envoyproxy/envoy/contrib/golang/common/go/api"
)

// Basic authentication: at once, or with `async` on a goroutine.
type basic struct {
	api.PassThroughStreamFilter
	callbacks api.FilterCallbackHandler
	config    map[string]any
}

func newBasic(config any, callbacks api.FilterCallbackHandler) api.StreamFilter {
	return &basic{callbacks: callbacks, config: config.(map[string]any)}
}

func (f *basic) DecodeHeaders(header api.RequestHeaderMap, _ bool) api.StatusType {
	if f.config["async"] != true {
		return f.check(header)
	}
	go func() {
		defer f.callbacks.DecoderFilterCallbacks().RecoverPanic()
		if status := f.check(header); status != api.LocalReply {
			f.callbacks.DecoderFilterCallbacks().Continue(status)
		}
	}()
	return api.Running
}

func (f *basic) check(header api.RequestHeaderMap) api.StatusType {
	said, _ := header.Get("authorization")
	user, password, ok := credentials(said)
	if !ok || user != f.config["user"] || password != f.config["password"] {
		headers := map[string][]string{"www-authenticate": {`Basic realm="tests"`}}
		f.callbacks.DecoderFilterCallbacks().SendLocalReply(401, "who are you?", headers, 0, "basic_refused")
		return api.LocalReply
	}
	header.Set("x-user", user)
	return api.Continue
}

func credentials(said string) (user, password string, ok bool) {
	encoded, ok := strings.CutPrefix(said, "Basic ")
	if !ok {
		return "", "", false
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(decoded), ":")
}
