//go:build !sdk38

package main

import "github.com/envoyproxy/envoy/contrib/golang/router/cluster_specifier/source/go/pkg/api"

func all(api.RequestHeaderMap) string {
	panic("this SDK shows no headers but by their names")
}
