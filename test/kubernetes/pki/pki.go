// Package pki makes the certificates and keys of a cluster. No cluster reuses another's.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"time"
)

// lifetime is longer than any cluster is up. Validity begins in the past, because clocks of test machines jump.
const lifetime, slack = 30 * 24 * time.Hour, time.Hour

// Pair is a certificate with its private key, both PEM.
type Pair struct{ Certificate, Key []byte }

// Authority signs certificates.
type Authority struct {
	Pair
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// must returns the value: only a bug makes an error, because the kernel's random numbers do not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// NewAuthority makes an authority with a self-signed certificate.
func NewAuthority(name string) *Authority {
	a := &Authority{key: newKey(), certificate: &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}}
	a.Pair = a.sign(a.certificate, a.key)
	return a
}

// Client makes a client certificate for a Kubernetes user and its groups.
func (a *Authority) Client(user string, groups ...string) Pair {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, newKey())
}

// Server makes a certificate for a server with these names and addresses.
func (a *Authority) Server(name string, names []string, addresses []netip.Addr) Pair {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    names,
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
	}
	return a.sign(template, newKey())
}

// sign completes the template and signs it.
func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) Pair {
	template.NotBefore = time.Now().Add(-slack)
	template.NotAfter = time.Now().Add(lifetime)
	der := must(x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key))
	return Pair{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: encodeKey(key)}
}

func encodeKey(key *ecdsa.PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(key))})
}

// SigningKey makes a private key without a certificate, for service account tokens.
func SigningKey() []byte { return encodeKey(newKey()) }
