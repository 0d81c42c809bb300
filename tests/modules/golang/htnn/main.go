//go:build so

// HTNN's collection of plugins as a library.
package main

import (
	"github.com/envoyproxy/envoy/contrib/golang/filters/http/source/go/pkg/http"

	"mosn.io/htnn/api/pkg/consumer"
	"mosn.io/htnn/api/pkg/dynamicconfig"
	"mosn.io/htnn/api/pkg/filtermanager"
	_ "mosn.io/htnn/plugins"
)

func init() {
	http.RegisterHttpFilterFactoryAndConfigParser("fm", filtermanager.FilterManagerFactory, &filtermanager.FilterManagerConfigParser{})
	http.RegisterHttpFilterFactoryAndConfigParser("cm", consumer.ConsumerManagerFactory, &consumer.ConsumerManagerConfigParser{})
	http.RegisterHttpFilterFactoryAndConfigParser("dc", dynamicconfig.DynamicConfigFactory, &dynamicconfig.DynamicConfigParser{})
}

func main() {}
