//go:build sdk31 || sdk32

package main

func (s *script) operateSince33(string, string, place) bool {
	return false
}
