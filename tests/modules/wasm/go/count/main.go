// Count counts the bytes of bodies as they pass, and tells the request's on the answer.
package main

import (
	"strconv"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

func init() {
	proxywasm.SetHttpContext(func(uint32) types.HttpContext { return &stream{} })
}

type stream struct {
	types.DefaultHttpContext
	bytes int
}

func (s *stream) OnHttpRequestBody(size int, _ bool) types.Action {
	s.bytes += size
	return types.ActionContinue
}

func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	if err := proxywasm.ReplaceHttpResponseHeader("x-request-bytes", strconv.Itoa(s.bytes)); err != nil {
		proxywasm.LogError(err.Error())
	}
	return types.ActionContinue
}

func (s *stream) OnHttpResponseBody(int, bool) types.Action { return types.ActionContinue }
