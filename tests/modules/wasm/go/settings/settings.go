// Package settings reads a plugin's configuration: one JSON object of strings.
package settings

import (
	"encoding/json"
	"fmt"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
)

// Read answers the values of these names; each must be there and not be empty.
func Read(names ...string) ([]string, error) {
	text, err := proxywasm.GetPluginConfiguration()
	if err != nil {
		return nil, fmt.Errorf("no configuration: %w", err)
	}
	var all map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("the configuration is no object of strings: %w", err)
	}
	values := make([]string, len(names))
	for i, name := range names {
		if values[i] = all[name]; values[i] == "" {
			return nil, fmt.Errorf("the configuration lacks %q", name)
		}
	}
	return values, nil
}
