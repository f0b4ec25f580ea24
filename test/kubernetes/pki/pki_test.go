package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"slices"
	"testing"
)

// parse checks that certificate and key belong together, and returns the certificate.
func parse(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(p.Certificate, p.Key); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(p.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func pool(t *testing.T, a *Authority) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Certificate) {
		t.Fatal("the authority's certificate is not accepted as a root")
	}
	return roots
}

func TestClientIsUserWithGroups(t *testing.T) {
	a := NewAuthority("test")
	c := parse(t, a.Client("system:node:n1", "system:nodes"))
	if c.Subject.CommonName != "system:node:n1" || !slices.Equal(c.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("subject %v", c.Subject)
	}
	client := x509.VerifyOptions{Roots: pool(t, a), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := c.Verify(client); err != nil {
		t.Error(err)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: pool(t, a)}); err == nil {
		t.Error("a client certificate is accepted for a server")
	}
	client.Roots = pool(t, NewAuthority("test"))
	if _, err := c.Verify(client); err == nil {
		t.Error("another authority's certificate is accepted")
	}
}

func TestServerHasNamesAndAddresses(t *testing.T) {
	a := NewAuthority("test")
	c := parse(t, a.Server("apiserver", []string{"kubernetes.default"},
		[]netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")}))
	for _, name := range []string{"kubernetes.default", "10.96.0.1", "fd00:96::1"} {
		if _, err := c.Verify(x509.VerifyOptions{Roots: pool(t, a), DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: pool(t, a), DNSName: "10.96.0.2"}); err == nil {
		t.Error("valid for an address that was not requested")
	}
}

func TestSigningKey(t *testing.T) {
	key := SigningKey()
	block, rest := pem.Decode(key)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one PEM block: %s", key)
	}
	if _, err := x509.ParseECPrivateKey(block.Bytes); err != nil {
		t.Error(err)
	}
}
