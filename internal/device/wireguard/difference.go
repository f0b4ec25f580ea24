package wireguard

import (
	"net"
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// difference is the least change that makes a device equal to spec; needed is false if it is. What a peer loses comes
// first: the kernel gives a prefix to the last peer that asks for it.
func difference(present *wgtypes.Device, spec Spec) (change wgtypes.Config, needed bool) {
	if present.PrivateKey != spec.PrivateKey {
		change.PrivateKey = &spec.PrivateKey
	}
	if present.ListenPort != spec.Port {
		change.ListenPort = &spec.Port
	}
	wanted := map[Key]Peer{}
	for _, p := range spec.Peers {
		wanted[p.PublicKey] = p
	}
	before, lost := map[Key]wgtypes.Peer{}, []netip.Prefix{}
	for _, p := range present.Peers {
		before[p.PublicKey] = p
		if _, keep := wanted[p.PublicKey]; !keep && !spec.Partial {
			change.Peers = append(change.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true})
		}
	}
	var changed []wgtypes.PeerConfig
	for _, p := range spec.Peers {
		c, stale, differs := peerDifference(before[p.PublicKey], p)
		if differs {
			changed = append(changed, c)
		}
		lost = append(lost, stale...)
	}
	change.Peers = append(append(change.Peers, collect(withoutWanted(lost, spec.Peers))...), changed...)
	return change, change.PrivateKey != nil || change.ListenPort != nil || len(change.Peers) > 0
}

// collector is the key of a peer that takes over what other peers lose, and is removed at once.
var collector = Key([]byte("Beeline takes allowed IPs away. "))

// collect takes allowed IPs from the peers that have them. Before Linux 6.16 no single one can be removed, and a peer whose
// allowed IPs are all written again has none for a moment: its packets would be lost.
func collect(lost []netip.Prefix) []wgtypes.PeerConfig {
	if len(lost) == 0 {
		return nil
	}
	taken := wgtypes.PeerConfig{PublicKey: collector}
	for _, a := range lost {
		taken.AllowedIPs = append(taken.AllowedIPs, *rtnl.IPNet(a))
	}
	return []wgtypes.PeerConfig{taken, {PublicKey: collector, Remove: true}}
}

// withoutWanted are the allowed IPs that no peer gets: the kernel moves the others.
func withoutWanted(lost []netip.Prefix, peers []Peer) []netip.Prefix {
	if len(lost) == 0 {
		return nil
	}
	wanted := map[netip.Prefix]bool{}
	for _, p := range peers {
		for _, a := range p.AllowedIPs {
			wanted[a] = true
		}
	}
	return slices.DeleteFunc(lost, func(a netip.Prefix) bool { return wanted[a] })
}

// peerDifference is the change of one peer: allowed IPs are added one by one. lost are the allowed IPs that it must not have.
func peerDifference(present wgtypes.Peer, p Peer) (change wgtypes.PeerConfig, lost []netip.Prefix, differs bool) {
	change.PublicKey = p.PublicKey
	if present.PublicKey != p.PublicKey || present.Endpoint == nil || present.Endpoint.AddrPort() != p.Endpoint {
		change.Endpoint, differs = net.UDPAddrFromAddrPort(p.Endpoint), true
	}
	has := make(map[netip.Prefix]bool, len(present.AllowedIPs))
	for _, ipNet := range present.AllowedIPs {
		prefix, ok := rtnl.Prefix(&ipNet)
		if !ok {
			continue
		}
		has[prefix] = true
		if !slices.Contains(p.AllowedIPs, prefix) {
			lost = append(lost, prefix)
		}
	}
	for _, a := range p.AllowedIPs {
		if !has[a] {
			change.AllowedIPs, differs = append(change.AllowedIPs, *rtnl.IPNet(a)), true
		}
	}
	return change, lost, differs
}
