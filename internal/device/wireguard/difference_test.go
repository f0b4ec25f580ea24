package wireguard

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func present(key byte, endpoint string, allowed ...string) wgtypes.Peer {
	p := wgtypes.Peer{PublicKey: Key{key}, Endpoint: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(endpoint))}
	for _, a := range prefixes(allowed...) {
		p.AllowedIPs = append(p.AllowedIPs, *rtnl.IPNet(a))
	}
	return p
}

func wanted(key byte, endpoint string, allowed ...string) Peer {
	return Peer{PublicKey: Key{key}, Endpoint: netip.MustParseAddrPort(endpoint), AllowedIPs: prefixes(allowed...)}
}

// A device gets what differs, and nothing else: what is written again would interrupt connections.
func TestDifference(t *testing.T) {
	const a, b = "192.0.2.1:7000", "[2001:db8::2]:7000"
	same := present(1, a, "10.1.0.0/24", "192.0.2.1/32")
	for name, c := range map[string]struct {
		present []wgtypes.Peer
		wanted  []Peer
		partial bool
		removed []byte
		// changed are peers with what is added to them, lost what no peer has any more.
		changed map[byte][]string
		lost    []string
		moved   []byte
	}{
		"no change": {present: []wgtypes.Peer{same}, wanted: []Peer{wanted(1, a, "192.0.2.1/32", "10.1.0.0/24")}},
		"a new peer": {
			present: []wgtypes.Peer{same}, wanted: []Peer{wanted(1, a, "10.1.0.0/24", "192.0.2.1/32"), wanted(2, b, "10.2.0.0/24", "fd00:2::/64")},
			changed: map[byte][]string{2: {"10.2.0.0/24", "fd00:2::/64"}}, moved: []byte{2},
		},
		"a peer gets an address": {
			present: []wgtypes.Peer{same}, wanted: []Peer{wanted(1, a, "10.1.0.0/24", "192.0.2.1/32", "192.0.2.77/32")},
			changed: map[byte][]string{1: {"192.0.2.77/32"}},
		},
		"a peer loses an address": {
			present: []wgtypes.Peer{same}, wanted: []Peer{wanted(1, a, "10.1.0.0/24")}, lost: []string{"192.0.2.1/32"},
		},
		"a peer loses all": {present: []wgtypes.Peer{same}, wanted: []Peer{wanted(1, a)}, lost: []string{"10.1.0.0/24", "192.0.2.1/32"}},
		"an address goes from one peer to another": {
			present: []wgtypes.Peer{same, present(2, b, "10.2.0.0/24")}, wanted: []Peer{wanted(1, a, "10.1.0.0/24"), wanted(2, b, "10.2.0.0/24", "192.0.2.1/32")},
			changed: map[byte][]string{2: {"192.0.2.1/32"}},
		},
		"a peer moves": {
			present: []wgtypes.Peer{same}, wanted: []Peer{wanted(1, b, "10.1.0.0/24", "192.0.2.1/32")}, changed: map[byte][]string{1: nil}, moved: []byte{1},
		},
		"a node has a new key": {
			present: []wgtypes.Peer{same}, wanted: []Peer{wanted(3, a, "10.1.0.0/24")},
			removed: []byte{1}, changed: map[byte][]string{3: {"10.1.0.0/24"}}, moved: []byte{3},
		},
		"a node is not known yet": {present: []wgtypes.Peer{same}, partial: true},
		"a node is gone":          {present: []wgtypes.Peer{same}, removed: []byte{1}},
	} {
		t.Run(name, func(t *testing.T) {
			device := &wgtypes.Device{PrivateKey: Key{9}, ListenPort: 7000, Peers: c.present}
			change, needed := difference(device, Spec{PrivateKey: Key{9}, Port: 7000, Peers: c.wanted, Partial: c.partial})
			if change.PrivateKey != nil || change.ListenPort != nil || change.ReplacePeers {
				t.Errorf("more than peers is written: %+v", change)
			}
			if needed != (len(c.removed)+len(c.changed)+len(c.lost) > 0) {
				t.Errorf("needed is %v", needed)
			}
			var removed, moved []byte
			var lost []string
			collected := false
			changed := map[byte][]string{}
			for i, p := range change.Peers {
				if p.PublicKey == collector {
					for _, a := range p.AllowedIPs {
						lost = append(lost, a.String())
					}
					collected = p.Remove
					continue
				}
				if p.Remove {
					if i >= len(c.removed) {
						t.Error("a peer is removed after another one was changed")
					}
					removed = append(removed, p.PublicKey[0])
					continue
				}
				if p.ReplaceAllowedIPs {
					t.Errorf("a peer has no allowed IPs for a moment: %+v", p)
				}
				var added []string
				for _, a := range p.AllowedIPs {
					added = append(added, a.String())
				}
				changed[p.PublicKey[0]] = added
				if p.Endpoint != nil {
					moved = append(moved, p.PublicKey[0])
				}
			}
			if !slices.Equal(removed, c.removed) || !slices.Equal(moved, c.moved) || len(changed) != len(c.changed) {
				t.Errorf("removed %v, moved %v, changed %v", removed, moved, changed)
			}
			if !slices.Equal(lost, c.lost) || collected != (len(c.lost) > 0) {
				t.Errorf("lost %v, want %v; the peer that takes them over is removed: %v", lost, c.lost, collected)
			}
			for key, want := range c.changed {
				if !slices.Equal(changed[key], want) {
					t.Errorf("peer %d gets %v, want %v", key, changed[key], want)
				}
			}
		})
	}
}

// Keys and the port are written if they differ.
func TestDifferenceOfKeys(t *testing.T) {
	change, needed := difference(&wgtypes.Device{}, Spec{PrivateKey: Key{1}, Port: 7})
	if !needed || change.PrivateKey == nil || *change.PrivateKey != (Key{1}) || change.ListenPort == nil || *change.ListenPort != 7 {
		t.Errorf("%v %+v", needed, change)
	}
}
