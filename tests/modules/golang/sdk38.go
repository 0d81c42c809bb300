//go:build sdk38

package main

import (
	"fmt"
	"strings"

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
	_, resumable := connection.SessionId()
	from, fromKnown := connection.ValidFromPeerCertificate()
	to, toKnown := connection.ExpirationPeerCertificate()
	return fmt.Sprintf("%s %t %t %d,%t %s session=%t valid=%t,%t,%t sha=%d serial=%t subject=%s issuer=%s own=%s uris=%v,%v dns=%v,%v pem=%t,%t",
		connection.TlsVersion(), connection.PeerCertificatePresented(), connection.PeerCertificateValidated(), cipher, known,
		connection.CiphersuiteString(), resumable, fromKnown, toKnown, from < to,
		len(connection.Sha256PeerCertificateDigest()), connection.SerialNumberPeerCertificate() != "",
		connection.SubjectPeerCertificate(), connection.IssuerPeerCertificate(), connection.SubjectLocalCertificate(),
		connection.UriSanPeerCertificate(), connection.UriSanLocalCertificate(),
		connection.DnsSansPeerCertificate(), connection.DnsSansLocalCertificate(),
		strings.HasPrefix(connection.UrlEncodedPemEncodedPeerCertificate(), "-----BEGIN%20CERTIFICATE-----"),
		strings.HasPrefix(connection.UrlEncodedPemEncodedPeerCertificateChain(), "-----BEGIN%20CERTIFICATE-----"))
}
