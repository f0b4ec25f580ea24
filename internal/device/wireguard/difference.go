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
	before := map[Key]wgtypes.Peer{}
	for _, p := range present.Peers {
		before[p.PublicKey] = p
		if _, keep := wanted[p.PublicKey]; !keep && !spec.Partial {
			change.Peers = append(change.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true})
		}
	}
	for _, p := range spec.Peers {
		if c, differs := peerDifference(before[p.PublicKey], p); differs {
			change.Peers = append(change.Peers, c)
		}
	}
	return change, change.PrivateKey != nil || change.ListenPort != nil || len(change.Peers) > 0
}

// peerDifference is the change of one peer. Allowed IPs are added one by one; only where one has to go, all are written
// again, in one request, which the kernel applies under its lock: no packet meets a peer without them.
func peerDifference(present wgtypes.Peer, p Peer) (change wgtypes.PeerConfig, differs bool) {
	change.PublicKey = p.PublicKey
	if present.PublicKey != p.PublicKey || present.Endpoint == nil || present.Endpoint.AddrPort() != p.Endpoint {
		change.Endpoint, differs = net.UDPAddrFromAddrPort(p.Endpoint), true
	}
	var has []netip.Prefix
	for _, ipNet := range present.AllowedIPs {
		if prefix, ok := rtnl.Prefix(&ipNet); ok {
			has = append(has, prefix)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(p.AllowedIPs), func(a netip.Prefix) bool { return slices.Contains(has, a) })
	add := missing
	if slices.ContainsFunc(has, func(a netip.Prefix) bool { return !slices.Contains(p.AllowedIPs, a) }) {
		change.ReplaceAllowedIPs, add = true, p.AllowedIPs
	}
	for _, a := range add {
		change.AllowedIPs = append(change.AllowedIPs, *rtnl.IPNet(a))
	}
	return change, differs || change.ReplaceAllowedIPs || len(missing) > 0
}
