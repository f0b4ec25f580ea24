package wireguard

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// State is what the kernel knows of a peer.
type State struct {
	// Endpoint is where encrypted packets to it are sent now: where the last one came from.
	Endpoint netip.AddrPort
	// Handshake is the time of the last one, of which there is one in two minutes of traffic; zero before the first.
	Handshake time.Time
	// Received and Sent are bytes of encrypted packets.
	Received, Sent int64
}

// States reads the peers of the device; without a device there are none.
func States() (map[Key]State, error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("open WireGuard's netlink family: %w", err)
	}
	defer client.Close()
	device, err := client.Device(Name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read device %s: %w", Name, err)
	}
	states := make(map[Key]State, len(device.Peers))
	for _, p := range device.Peers {
		states[p.PublicKey] = stateOf(p)
	}
	return states, nil
}

func stateOf(p wgtypes.Peer) State {
	s := State{Handshake: p.LastHandshakeTime, Received: p.ReceiveBytes, Sent: p.TransmitBytes}
	if p.Endpoint != nil {
		end := p.Endpoint.AddrPort()
		s.Endpoint = netip.AddrPortFrom(end.Addr().Unmap(), end.Port())
	}
	if s.Handshake.Unix() <= 0 {
		s.Handshake = time.Time{}
	}
	return s
}
