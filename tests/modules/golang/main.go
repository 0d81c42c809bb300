// The Go filter library that the tests of Go filters load, built once with each SDK that they are about.
package main

import (
	"errors"

	xds "github.com/cncf/xds/go/xds/type/v3"
	"github.com/envoyproxy/envoy/contrib/golang/common/go/api"
	"github.com/envoyproxy/envoy/contrib/golang/filters/http/source/go/pkg/http"
	"google.golang.org/protobuf/types/known/anypb"
)

func init() {
	http.RegisterHttpFilterFactoryAndConfigParser("passthrough", http.PassThroughFactory, http.NullParser)
	http.RegisterHttpFilterFactoryAndConfigParser("basic", newBasic, fields{})
	http.RegisterHttpFilterFactoryAndConfigParser("script", newScript, scripts{})
}

func main() {}

// What every configuration here is: the Struct of a TypedStruct.
func read(config *anypb.Any) (map[string]any, error) {
	typed := &xds.TypedStruct{}
	if config.GetTypeUrl() == "" {
		return map[string]any{}, nil
	}
	if err := config.UnmarshalTo(typed); err != nil {
		return nil, err
	}
	read := typed.Value.AsMap()
	if read["refuse"] != nil {
		return nil, errors.New("told to refuse")
	}
	return read, nil
}

// A route's fields beside its parent's, and in front of them.
func merge(parent, child map[string]any) map[string]any {
	merged := map[string]any{}
	for key, value := range parent {
		merged[key] = value
	}
	for key, value := range child {
		merged[key] = value
	}
	return merged
}

type fields struct{}

func (fields) Parse(config *anypb.Any, _ api.ConfigCallbackHandler) (any, error) {
	return read(config)
}

func (fields) Merge(parent, child any) any {
	return merge(parent.(map[string]any), child.(map[string]any))
}
