//go:build !sdk38

package main

func (s *script) operateNew(op string, _ map[string]any, _ place) {
	panic("this SDK has no operation " + op)
}
