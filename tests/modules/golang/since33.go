//go:build !sdk31 && !sdk32

package main

// What came with SDK 1.33. Whether it is one of these.
func (s *script) operateSince33(op string, value string, at place) bool {
	switch op {
	case "refresh_route":
		s.callbacks.RefreshRouteCache()
	case "add_data":
		at.side.AddData([]byte(value), false)
	default:
		return false
	}
	return true
}
