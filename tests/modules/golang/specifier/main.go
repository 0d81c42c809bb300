// A Go library that chooses clusters and holds no filter, built with the oldest and the newest SDK.
package main

import (
	"fmt"
	"strings"
	"sync/atomic"

	xds "github.com/cncf/xds/go/xds/type/v3"
	"github.com/envoyproxy/envoy/contrib/golang/router/cluster_specifier/source/go/pkg/api"
	specifier "github.com/envoyproxy/envoy/contrib/golang/router/cluster_specifier/source/go/pkg/cluster_specifier"
	"google.golang.org/protobuf/types/known/anypb"
)

func init() {
	specifier.RegisterClusterSpecifierConfigFactory(newChooser)
}

func main() {}

type chooser struct {
	config map[string]any
	asked  atomic.Uint64
}

func newChooser(config *anypb.Any) api.ClusterSpecifier {
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
	return &chooser{config: fields}
}

// Does what the header `x-do` says, or names the cluster that the configuration has beside the value of `x-to`.
func (c *chooser) Cluster(header api.RequestHeaderMap) string {
	asked := c.asked.Add(1)
	command, _ := header.Get("X-Do")
	verb, argument, _ := strings.Cut(command, " ")
	switch verb {
	case "panic":
		panic("on purpose")
	case "nothing":
		return ""
	case "count":
		return fmt.Sprintf("cluster-%d", asked)
	case "long":
		return strings.Repeat("x", number(argument)-1) + "y"
	case "first":
		value, found := header.Get(argument)
		return fmt.Sprintf("%s,%t", value, found)
	case "all":
		return all(header)
	case "elsewhere":
		told := make(chan string)
		go func() {
			value, found := header.Get("x-do")
			told <- fmt.Sprintf("%s,%t", value, found)
		}()
		return <-told
	}
	to, _ := header.Get("x-to")
	name, _ := c.config[to].(string)
	return name
}

func number(text string) (number int) {
	fmt.Sscan(text, &number)
	return number
}
