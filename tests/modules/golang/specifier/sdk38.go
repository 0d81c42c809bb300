//go:build sdk38

package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/envoyproxy/envoy/contrib/golang/router/cluster_specifier/source/go/pkg/api"
)

// The newer SDK shows all headers at once: the first line, and what begins like the tests' own.
func all(header api.RequestHeaderMap) string {
	lines := []string{}
	for name, values := range header.GetAllHeaders() {
		if name[0] != ':' && !strings.HasPrefix(name, "x-a") {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s=%s", name, strings.Join(values, "+")))
	}
	sort.Strings(lines)
	return strings.Join(lines, " ")
}
