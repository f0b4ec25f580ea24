package apiserver

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"k8s.io/client-go/rest"
)

// The addresses of the API server are known before the first request, so that they are reserved for it.
func TestAddressesAreResolvedBeforeTheFirstRequest(t *testing.T) {
	for host, want := range map[string]string{
		"https://192.0.2.1:6443": "[192.0.2.1:6443]", "https://192.0.2.1": "[192.0.2.1:443]", "http://[2001:db8::1]:8080": "[[2001:db8::1]:8080]",
		"192.0.2.1:6443": "[192.0.2.1:6443]", "https://api.example:6443": "[]",
	} {
		if got := fmt.Sprint(newDialled(host).all); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

// The addresses of a name are known once they are dialled, also unreachable ones.
func TestAddressesAreThoseDialled(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	at := netip.MustParseAddrPort(listener.Addr().String())
	c, err := connect(&rest.Config{Host: fmt.Sprintf("http://localhost:%d", at.Port())})
	if err != nil {
		t.Fatal(err)
	}
	s := &Source{connection: c}
	if got := s.Addresses(); len(got) != 0 {
		t.Fatalf("addresses %v before anything was dialled", got)
	}
	conn, err := c.dialled.dial(t.Context(), "tcp4", fmt.Sprintf("localhost:%d", at.Port()))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := s.Addresses(); len(got) != 1 || got[0] != at {
		t.Errorf("addresses %v, want %s", got, at)
	}
	for port := range 3 * dialledKept {
		c.dialled.note(fmt.Sprintf("192.0.2.1:%d", 1000+port))
	}
	if got := s.Addresses(); len(got) != dialledKept {
		t.Errorf("%d addresses are kept, want %d", len(got), dialledKept)
	}
}
