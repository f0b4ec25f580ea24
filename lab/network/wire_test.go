package network

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/testbed"
)

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
		"encrypted":             {Wire{Payload: 100, Frames: 9, Encrypted: 200}, WireGuard, ""},
		"a part was elsewhere":  {Wire{Payload: 100, Frames: 9, Encrypted: 199}, WireGuard, "fewer than"},
		"an address of a pod":   {Wire{Payload: 100, Frames: 9, Encrypted: 200, Inside: 1}, IPsec, "plaintext"},
		"a mark":                {Wire{Payload: 100, Frames: 9, Encrypted: 200, Marked: 1}, IPsec, "plaintext"},
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
