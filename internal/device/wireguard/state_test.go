package wireguard

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// A peer that has never been heard of has no handshake and may have no endpoint. The kernel's socket gives IPv4 addresses
// as IPv6 ones.
func TestStateOf(t *testing.T) {
	if s := stateOf(wgtypes.Peer{LastHandshakeTime: time.Unix(0, 0)}); !s.Handshake.IsZero() || s.Endpoint.IsValid() {
		t.Errorf("a fresh peer: %+v", s)
	}
	s := stateOf(wgtypes.Peer{
		Endpoint: &net.UDPAddr{IP: net.ParseIP("192.0.2.1"), Port: 7}, LastHandshakeTime: time.Unix(9, 0), ReceiveBytes: 1, TransmitBytes: 2,
	})
	if want := (State{netip.MustParseAddrPort("192.0.2.1:7"), time.Unix(9, 0), 1, 2}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}
