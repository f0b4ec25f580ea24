package node

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/internal/agent/ipseckeys"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// EncryptionMode says how packets between nodes are encrypted.
type EncryptionMode string

// The modes.
const (
	EncryptionNone      = EncryptionMode("none")
	EncryptionWireGuard = EncryptionMode(config.EncryptionWireGuard)
	EncryptionIPsec     = EncryptionMode(config.EncryptionIPsec)
)

// On reports whether packets to other nodes are encrypted.
func (m EncryptionMode) On() bool { return m.Device() != "" }

// Device is the name of the device that encrypts; empty without.
func (m EncryptionMode) Device() string {
	switch m {
	case EncryptionWireGuard:
		return wireguard.Name
	case EncryptionIPsec:
		return ipsec.Name
	}
	return ""
}

// Datapath is the mode in the configuration of the datapath.
func (m EncryptionMode) Datapath() config.Encryption {
	if !m.On() {
		return ""
	}
	return config.Encryption(m)
}

// Announced is what a node tells the others in this mode; empty without.
func (m EncryptionMode) Announced(by cluster.Node) string {
	switch m {
	case EncryptionWireGuard:
		return by.WireGuardKey
	case EncryptionIPsec:
		return by.IPsec
	}
	return ""
}

// Encryption is this node's device that encrypts, or why there is none.
type Encryption struct {
	// Index of the device; 0 without one.
	Index int
	// Missing says why a needed device does not exist.
	Missing error
	// Tunnels are those of IPsec. Wrong says why there is none to a node, by its name.
	Tunnels map[string]ipseckeys.Tunnel
	Wrong   map[string]string
	// Problem is what an administrator should know, while packets are encrypted.
	Problem error
}

// encrypted reports whether packets between pods of this node and of another one have to be encrypted: all, unless
// plaintext is allowed and that node has no key yet.
func (f Facts) encrypted(n cluster.Node) bool {
	return f.Config.Encryption.On() && (f.Config.EncryptionStrict || f.Config.Encryption.Announced(n) != "")
}

// Peers are the other nodes with a key, by their name. A key belongs to the oldest node that has it: a node that copies
// another one's key gets none of that node's packets. wrong says which keys are not used and why.
func (f Facts) Peers() (peers map[string]wireguard.Peer, wrong map[string]string) {
	peers, wrong = map[string]wireguard.Peer{}, map[string]string{}
	nodes := slices.Clone(f.Snapshot.Nodes)
	slices.SortStableFunc(nodes, func(a, b cluster.Node) int { return a.Created.Compare(b.Created) })
	owner := map[wireguard.Key]string{}
	for _, n := range nodes {
		key, err := wgtypes.ParseKey(n.WireGuardKey)
		switch {
		case n.WireGuardKey == "":
			wrong[n.Name] = fmt.Sprintf("it has no key (annotation %s): its agent runs without --encryption=%s, or has not started yet", v1alpha1.AnnotationWireGuardKey, EncryptionWireGuard)
		case err != nil:
			wrong[n.Name] = fmt.Sprintf("its annotation %s is no key: %v", v1alpha1.AnnotationWireGuardKey, err)
		case owner[key] != "":
			wrong[n.Name] = fmt.Sprintf("node %q has the same key", owner[key])
		default:
			owner[key] = n.Name
			if n.Name == f.Config.NodeName {
				continue
			}
			end, ok := f.tunnelEnd(n)
			if !ok {
				wrong[n.Name] = fmt.Sprintf("none of its addresses %v is of a family of which this node has an InternalIP", n.Addresses)
				continue
			}
			p := wireguard.Peer{PublicKey: key, Endpoint: netip.AddrPortFrom(end, uint16(f.Config.WireGuardPort)), AllowedIPs: slices.Clone(n.PodCIDRs)}
			for _, a := range n.Addresses {
				p.AllowedIPs = append(p.AllowedIPs, HostPrefix(a))
			}
			peers[n.Name] = p
		}
	}
	return peers, wrong
}

// someKeyIsWrong reports whether packets have to be encrypted and a node has no usable key.
func (f Facts) someKeyIsWrong() bool { return len(f.wrong()) > 0 }

// wrong says why packets to a node cannot be encrypted, by its name.
func (f Facts) wrong() map[string]string {
	if f.Config.Encryption != EncryptionWireGuard {
		return f.Encryption.Wrong
	}
	_, wrong := f.Peers()
	return wrong
}

// EncryptionSpec is the desired WireGuard device, without the private key; needed is false without encryption.
func (f Facts) EncryptionSpec() (spec wireguard.Spec, needed bool) {
	if f.Config.Encryption != EncryptionWireGuard || f.Uplink == nil {
		return spec, false
	}
	spec = wireguard.Spec{Port: f.Config.WireGuardPort, MTU: f.encryptedMTUMin(), Partial: f.Recovered > 0 || f.Snapshot.Incomplete}
	spec.Addresses = f.encryptedAddresses()
	peers, _ := f.Peers()
	for _, p := range peers {
		spec.Peers = append(spec.Peers, p)
	}
	slices.SortFunc(spec.Peers, func(a, b wireguard.Peer) int { return slices.Compare(a.PublicKey[:], b.PublicKey[:]) })
	return spec, true
}

// encryptedAddresses are those of the device that encrypts: see encrypted.SetUp.
func (f Facts) encryptedAddresses() []netip.Addr {
	if a, ok := first(f.Held, true); ok {
		return []netip.Addr{a}
	}
	return nil
}

// carries is the largest packet that fits into one encrypted packet to this address, in bytes.
func (f Facts) carries(end netip.Addr) int {
	if f.Config.Encryption == EncryptionIPsec {
		return ipsec.MTU(f.Uplink.MTU, end)
	}
	return f.Uplink.MTU - wireguard.Overhead(end)
}

// encryptedMTU is the largest packet to this address, in bytes: WireGuard would have larger ones fragmented outside.
func (f Facts) encryptedMTU(end netip.Addr) int {
	mtu := f.carries(end)
	if f.Config.MTU == 0 {
		return mtu
	}
	return min(f.Config.MTU, mtu)
}

// encryptedMTUMin is what fits on the way to each of the nodes.
func (f Facts) encryptedMTUMin() int {
	family := netip.IPv4Unspecified()
	if len(f.Held) > 0 && !slices.ContainsFunc(f.Held, netip.Addr.Is4) {
		family = netip.IPv6Unspecified()
	}
	mtu := f.carries(family)
	for _, n := range f.Snapshot.Nodes {
		if end, ok := f.tunnelEnd(n); ok && n.Name != f.Config.NodeName {
			mtu = min(mtu, f.carries(end))
		}
	}
	return mtu
}

// closedRoute drops and counts packets of every size that a device takes: larger ones than its MTU would be left to the
// kernel stack, which has a route of its own that rejects them.
var closedRoute = fwd.Route{Kind: fwd.RouteEncrypted, MTU: maxMTU}

// addEncrypted adds the routes to a node's addresses of one family through the device that encrypts. What cannot be encrypted is dropped,
// also by the kernel stack.
// pending is the reason; empty for what is encrypted.
func (d *Desired) addEncrypted(n cluster.Node, ipv4 bool, own cluster.Node, f Facts) (mtu int, pending string) {
	end, _ := f.tunnelEnd(n)
	to, pending := closedRoute, f.encryptionPending(n, ipv4)
	to.NextHop = end
	if pending != "" {
		d.unreachable(n, ipv4, pending)
	} else {
		mtu = f.encryptedMTU(end)
		to.Interface, to.MTU = f.Encryption.Index, mtu
	}
	d.addThroughTunnel(n, ipv4, own, f, to)
	return mtu, pending
}

// peerOf is the peer of a node, for status; of both families it has the first reason.
func (f Facts) peerOf(n cluster.Node, pending string, before *agentapi.NodeEncryption) *agentapi.NodeEncryption {
	if before != nil {
		return &agentapi.NodeEncryption{Pending: cmp.Or(before.Pending, pending), PublicKey: before.PublicKey, KeyGeneration: before.KeyGeneration, Endpoint: before.Endpoint}
	}
	e := &agentapi.NodeEncryption{Pending: pending}
	switch t, has := f.Encryption.Tunnels[n.Name]; {
	case f.wrongKeys[n.Name] != "":
	case f.Config.Encryption == EncryptionWireGuard:
		e.PublicKey = n.WireGuardKey
	case has:
		e.KeyGeneration, e.Endpoint = uint32(t.Generation), t.Remote.String()
	}
	return e
}

// encryptionPending says why packets to a node cannot be encrypted; empty if they can.
func (f Facts) encryptionPending(n cluster.Node, ipv4 bool) string {
	switch {
	case f.Uplink == nil:
		return "there is no uplink"
	case f.Encryption.Index == 0:
		return fmt.Sprintf("there is no device %s: %v", f.Config.Encryption.Device(), f.Encryption.Missing)
	case f.Tunnel.Index == 0: // what the kernel stack sends passes its program
		return fmt.Sprintf("there is no VXLAN device: %v", f.Tunnel.Missing)
	}
	if reason := f.wrongKeys[n.Name]; reason != "" && !n.Recovered { // the peer of a recovered node is kept
		return reason
	}
	if end, ok := f.tunnelEnd(n); !ok || !ipv4 && f.encryptedMTU(end) < minMTU {
		return fmt.Sprintf("an encrypted packet over %s carries too little for it", f.Uplink.Name)
	}
	return ""
}

// addEncryptedRanges drops packets to the pod ranges of nodes that are not known yet.
func (d *Desired) addEncryptedRanges(f Facts) {
	if !f.Config.Encryption.On() || !f.Config.EncryptionStrict {
		return
	}
	for _, p := range f.Config.EncryptedCIDRs {
		if _, known := d.Routes[p]; !known {
			d.Routes[p] = closedRoute
			d.KernelRoutes = append(d.KernelRoutes, route.Route{Prefix: p, Unreachable: true})
		}
	}
}

// path is the path of a node, for status.
func (m EncryptionMode) path(pending string) string {
	switch {
	case pending != "":
		return agentapi.NodePathPending
	case m == EncryptionIPsec:
		return agentapi.NodePathIPsec
	}
	return agentapi.NodePathWireGuard
}
