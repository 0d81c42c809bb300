// A library whose SDK speaks an interface that is taken no more.
package main

import _ "github.com/envoyproxy/envoy/contrib/golang/filters/http/source/go/pkg/http"

func main() {}
