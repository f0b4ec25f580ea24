package network

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestEncryptedNetworks brings up each network of the encryption suite: pods reach each other with the largest packets,
// and the wire shows their payload where it has to.
func TestEncryptedNetworks(t *testing.T) {
	labs := map[string]testbed.Options{
		"IPv4":       {},
		"dual stack": {IPv6: true, Nodes: 3},
		"jumbo":      {MTU: 9000},
	}
	overhead := map[string]int{"node": 0, "beeline": 0, "beeline-wireguard": 60, "beeline-ipsec": 54, "kernel-wireguard": 60, "kernel-ipsec": 54}
	for _, n := range WithEncryption() {
		for name, o := range labs {
			t.Run(n.Name()+"/"+name, func(t *testing.T) {
				lab := up(t, n, o)
				a, far := addPod(t, n, lab, 0, "a"), addPod(t, n, lab, len(lab.Nodes())-1, "far")
				for _, pair := range [][2]*testbed.Pod{{a, far}, {far, a}} {
					if err := Verify(t.Context(), n, pair[0], pair[1]); err != nil {
						t.Error(err)
					}
				}
				if _, err := VerifyWire(t.Context(), n, lab, a, far); err != nil {
					t.Error(err)
				}
				if want := lab.MTU - overhead[n.Name()]; !o.IPv6 && a.MTU != want {
					t.Errorf("path MTU %d, want %d", a.MTU, want)
				}
			})
		}
	}
}

// TestWireShowsPlaintext has a network that claims to encrypt and does not.
func TestWireShowsPlaintext(t *testing.T) {
	n := *ptp
	n.encryption = IPsec
	lab := up(t, &n, testbed.Options{})
	_, err := VerifyWire(t.Context(), &n, lab, addPod(t, &n, lab, 0, "a"), addPod(t, &n, lab, 1, "b"))
	if err == nil || !strings.Contains(err.Error(), "in plaintext") {
		t.Errorf("a network that sends in plaintext: %v", err)
	}
}

// TestWireCheck has captures that show too little.
func TestWireCheck(t *testing.T) {
	for name, test := range map[string]struct {
		wire Wire
		e    Encryption
		want string
	}{
		"encrypted":             {Wire{Payload: 100, Frames: 9, Encrypted: 400}, WireGuard, ""},
		"a part was elsewhere":  {Wire{Payload: 100, Frames: 9, Encrypted: 399}, WireGuard, "fewer than"},
		"an address of a pod":   {Wire{Payload: 100, Frames: 9, Encrypted: 400, Inside: 1}, IPsec, "plaintext"},
		"a mark":                {Wire{Payload: 100, Frames: 9, Encrypted: 400, Marked: 1}, IPsec, "plaintext"},
		"plain":                 {Wire{Payload: 100, Frames: 9, Marked: 3, Inside: 9}, "", ""},
		"a capture of nothing":  {Wire{Payload: 100}, "", "shows nothing"},
		"plain, without a mark": {Wire{Payload: 100, Frames: 9}, "", "shows nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.wire.check("x", test.e)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
