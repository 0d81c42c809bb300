//go:build sdk38

package main

import (
	"fmt"

	"github.com/envoyproxy/envoy/contrib/golang/common/go/api"
)

// What the newer SDK has beside.
func (s *script) operateNew(op string, operation map[string]any, at place) {
	text := func(key string) string { value, _ := operation[key].(string); return value }
	switch op {
	case "inject":
		at.side.InjectData([]byte(text("value")))
	case "override":
		strict, _ := operation["strict"].(bool)
		if err := s.callbacks.DecoderFilterCallbacks().SetUpstreamOverrideHost(text("value"), strict); err != nil {
			at.put(text("to"), err.Error())
		}
	case "drain_connection":
		s.callbacks.StreamInfo().DrainConnectionUponCompletion()
	case "secret":
		value, ok := s.callbacks.SecretManager().GetGenericSecret(text("key"))
		at.put(text("to"), fmt.Sprintf("%s,%t", value, ok))
	case "tls":
		at.put(text("to"), tls(s.callbacks.StreamInfo().DownstreamSslConnection()))
	default:
		panic("there is no operation " + op)
	}
}

func tls(connection api.SslConnection) string {
	if connection == nil {
		return "none"
	}
	cipher, known := connection.CiphersuiteId()
	return fmt.Sprintf("%s %t %t %d,%t %s %v", connection.TlsVersion(), connection.PeerCertificatePresented(),
		connection.PeerCertificateValidated(), cipher, known, connection.SubjectPeerCertificate(),
		connection.DnsSansLocalCertificate())
}
