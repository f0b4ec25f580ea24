package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

const wireguardIndex = 11

// keyOf is a valid public key.
func keyOf(b byte) string { return wireguard.Key{b}.String() }

// encrypted is threeNodes with encryption and keys. Node c has none.
func encrypted() Facts {
	f := threeNodes()
	f.Config.Encryption, f.Config.EncryptionStrict, f.Config.WireGuardPort = EncryptionWireGuard, true, 28781
	f.Encryption.Index = wireguardIndex
	for i := range f.Snapshot.Nodes[:2] {
		f.Snapshot.Nodes[i].WireGuardKey = keyOf(byte(i + 1))
	}
	return f
}

// Every address of another node is encrypted, or closed, for the datapath and for the kernel stack.
func TestDesireEncrypted(t *testing.T) {
	f := encrypted()
	f.Config.EncryptedCIDRs = prefixes("10.1.0.0/16")
	d := Desire(f)
	to := fwd.Route{Kind: fwd.RouteEncrypted, Interface: wireguardIndex, MTU: 1440, NextHop: addr("192.0.2.2")}
	closed := fwd.Route{Kind: fwd.RouteEncrypted, MTU: 65535, NextHop: addr("198.51.100.3")}
	for want, all := range map[fwd.Route][]netip.Prefix{
		to:                                     prefixes("10.1.2.0/24", "fd00:2::/64", "192.0.2.2/32", "2001:db8::2/128"),
		closed:                                 prefixes("10.1.3.0/24", "fd00:3::/64", "198.51.100.3/32", "2001:db8:1::3/128"),
		{Kind: fwd.RouteEncrypted, MTU: 65535}: prefixes("10.1.0.0/16"),
	} {
		for _, p := range all {
			if d.Routes[p] != want {
				t.Errorf("the route to %s is %+v, want %+v", p, d.Routes[p], want)
			}
		}
	}
	for _, want := range []route.Route{
		{Prefix: netip.MustParsePrefix("10.1.2.0/24"), Via: addr("169.254.1.1"), OnLink: true, Device: tunnelIndex, MTU: 1440, Source: addr("192.0.2.1")},
		{Prefix: netip.MustParsePrefix("192.0.2.2/32"), Via: addr("169.254.1.1"), OnLink: true, Device: tunnelIndex, MTU: 1440, Table: route.TunnelTable},
		{Prefix: netip.MustParsePrefix("10.1.3.0/24"), Unreachable: true},
		{Prefix: netip.MustParsePrefix("198.51.100.3/32"), Unreachable: true, Table: route.TunnelTable},
		{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Unreachable: true},
	} {
		if !slices.Contains(d.KernelRoutes, want) {
			t.Errorf("the stack lacks the route %+v", want)
		}
	}
	if d.MTU != 1440 || !d.TunnelRules {
		t.Errorf("MTU of pods %d, rules %t", d.MTU, d.TunnelRules)
	}
	if len(d.Problems) != 2 || !strings.Contains(d.Problems[0], `pods of node "c"`) || !strings.Contains(d.Problems[0], "has no key") {
		t.Errorf("problems %q", d.Problems)
	}
	if d.Nodes[0].Path != agentapi.NodePathWireGuard || d.Nodes[0].MTU != 1440 || d.Nodes[1].Path != agentapi.NodePathPending {
		t.Errorf("nodes %+v", d.Nodes)
	}
	if b, c := d.Nodes[0].Encryption, d.Nodes[1].Encryption; b == nil || c == nil || b.PublicKey != keyOf(2) || b.Pending != "" || c.PublicKey != "" || !strings.Contains(c.Pending, "has no key") {
		t.Errorf("peers %+v and %+v", b, c)
	}
	if spec, needed := f.TunnelSpec(); !needed || spec.MTU != 1440 {
		t.Errorf("the VXLAN device, through which the stack sends: %+v, needed %t", spec, needed)
	}
}

// Whatever is missing, no route leads out in plaintext.
func TestNoPlaintext(t *testing.T) {
	for name, damage := range map[string]func(*Facts){
		"no WireGuard":        func(f *Facts) { f.Encryption = Encryption{Missing: wireguard.ErrUnsupported} },
		"no VXLAN":            func(f *Facts) { f.Tunnel = Tunnel{} },
		"no uplink":           func(f *Facts) { f.Uplink = nil },
		"no address":          func(f *Facts) { f.Held = nil },
		"no key":              func(f *Facts) { f.Snapshot.Nodes[1].WireGuardKey = "" },
		"a broken key":        func(f *Facts) { f.Snapshot.Nodes[1].WireGuardKey = "AAAA" },
		"another node's key":  func(f *Facts) { f.Snapshot.Nodes[1].WireGuardKey = f.Snapshot.Nodes[0].WireGuardKey },
		"tunnels are off":     func(f *Facts) { f.Config.Tunnel, f.Tunnel = TunnelNone, Tunnel{} },
		"nothing is damaged":  func(*Facts) {},
		"an uplink too small": func(f *Facts) { f.Uplink.MTU = 1300 },
	} {
		t.Run(name, func(t *testing.T) {
			f := encrypted()
			uplink := *f.Uplink
			f.Uplink = &uplink
			damage(&f)
			d := Desire(f)
			for _, p := range prefixes("10.1.2.0/24", "fd00:2::/64", "192.0.2.2/32", "2001:db8::2/128", "10.1.3.0/24", "fd00:3::/64") {
				if r := d.Routes[p]; r.Kind != fwd.RouteEncrypted || r.Interface != 0 && r.Interface != wireguardIndex {
					t.Errorf("the route to %s is %+v", p, r)
				}
			}
			for _, r := range d.KernelRoutes {
				if r.Prefix.Addr().Is4() && strings.HasPrefix(r.Prefix.String(), "10.1.2.") && !r.Unreachable && r.Device != tunnelIndex {
					t.Errorf("the stack sends by %+v", r)
				}
			}
		})
	}
}

// While plaintext is allowed, nodes without a key are reached as without encryption.
func TestPlaintextAllowed(t *testing.T) {
	f := encrypted()
	f.Config.EncryptionStrict = false
	d := Desire(f)
	if p := netip.MustParsePrefix("10.1.3.0/24"); d.Routes[p] != throughTunnel("198.51.100.3", 1450) {
		t.Errorf("the route to %s is %+v", p, d.Routes[p])
	}
	if p := netip.MustParsePrefix("10.1.2.0/24"); d.Routes[p].Kind != fwd.RouteEncrypted {
		t.Errorf("the route to %s is %+v", p, d.Routes[p])
	}
	if len(d.Problems) > 0 {
		t.Errorf("problems %q", d.Problems)
	}
}

// Peers have what their Nodes have. A copied key takes nothing from its owner.
func TestPeers(t *testing.T) {
	f := encrypted()
	f.Snapshot.Nodes[2].WireGuardKey, f.Snapshot.Nodes[2].Created = keyOf(2), time.Now()
	peers, wrong := f.Peers()
	if len(peers) != 1 || !strings.Contains(wrong["c"], `node "b" has the same key`) {
		t.Fatalf("peers %v, wrong %v", peers, wrong)
	}
	b := peers["b"]
	if b.PublicKey != (wireguard.Key{2}) || b.Endpoint != netip.MustParseAddrPort("192.0.2.2:28781") ||
		!slices.Equal(b.AllowedIPs, prefixes("10.1.2.0/24", "fd00:2::/64", "192.0.2.2/32", "2001:db8::2/128")) {
		t.Errorf("%+v", b)
	}
	spec, needed := f.EncryptionSpec()
	if !needed || spec.MTU != 1440 || spec.Partial || len(spec.Peers) != 1 {
		t.Errorf("%+v, needed %t", spec, needed)
	}
	f.Snapshot.Incomplete = true
	if spec, _ = f.EncryptionSpec(); !spec.Partial {
		t.Error("peers are removed before all nodes are known")
	}
	f.Snapshot = &cluster.Snapshot{Nodes: []cluster.Node{{Name: "x", Recovered: true}}}
	f.Config.Encryption = EncryptionNone
	if _, needed = f.EncryptionSpec(); needed {
		t.Error("needed without encryption")
	}
}
