package node

import (
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// What nodes send each other is encrypted where both say so, with and without the other one's key; and where plaintext is allowed, with it.
func TestDesireNodesEncrypted(t *testing.T) {
	for _, c := range []struct {
		name              string
		own, other, plain bool // this node has the flag, the others announce it, plaintext is allowed
		b, c              bool // what b, which has a key, and c without one get
	}{
		{"neither", false, false, false, false, false},
		{"this one", true, false, false, false, false},
		{"the others", false, true, false, false, false},
		{"all", true, true, false, true, true},
		{"all, with plaintext allowed", true, true, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := encrypted()
			f.Config.EncryptNodes, f.Config.EncryptionStrict = c.own, !c.plain
			for i := range f.Snapshot.Nodes {
				f.Snapshot.Nodes[i].EncryptsNodes = c.other
			}
			d := Desire(f)
			for address, want := range map[string]bool{"192.0.2.2": c.b, "2001:db8::2": c.b, "198.51.100.3": c.c, "2001:db8:1::3": c.c} {
				p := HostPrefix(addr(address))
				if d.Routes[p].Nodes != want {
					t.Errorf("the datapath encrypts to %s: %t, want %t", address, !want, want)
				}
				at := slices.IndexFunc(d.KernelRoutes, func(r route.Route) bool { return r.Prefix == p && r.Table == route.NodesTable })
				if (at >= 0) != want {
					t.Errorf("the stack has a route to %s: %t, want %t", address, !want, want)
				}
			}
			if at := slices.IndexFunc(d.KernelRoutes, func(r route.Route) bool {
				return r == route.Route{Prefix: HostPrefix(addr("192.0.2.2")), Via: addr("169.254.1.1"), OnLink: true, Device: tunnelIndex, MTU: 1440, Source: addr("192.0.2.1"), Table: route.NodesTable}
			}); (at >= 0) != c.b {
				t.Errorf("the route to 192.0.2.2 is not by the tunnel with the node's address: %+v", d.KernelRoutes)
			}
			for p, r := range d.Routes {
				if r.Nodes && !p.IsSingleIP() {
					t.Errorf("the pod range %s is marked as an address of a node", p)
				}
			}
			if (d.NodesRules != nil) != c.own {
				t.Errorf("the routing rules are %+v", d.NodesRules)
			}
			found, added := Recover(&cluster.Snapshot{Nodes: f.Snapshot.Nodes[:1], Incomplete: true}, f.Config.NodeName, d.Routes)
			if added == 0 {
				t.Error("no node is recovered")
			}
			for _, n := range found.Nodes {
				if n.Name != f.Config.NodeName && slices.Contains(n.Addresses, addr("192.0.2.2")) && n.EncryptsNodes != c.b {
					t.Errorf("%s is recovered as one that encrypts: %t", n.Name, n.EncryptsNodes)
				}
			}
		})
	}
}

// The rules let pass what is excepted, outer packets, and other addresses of this node.
func TestNodesRules(t *testing.T) {
	f := encrypted()
	f.Config.EncryptNodes, f.Config.NodesExcept = true, value.Ports{{Protocol: 6, Port: 443}}
	own, _ := f.Snapshot.Node(f.Config.NodeName)
	f.Local = append(slices.Clone(own.Addresses), addr("127.0.0.1"), addr("fe80::1"), addr("203.0.113.9"))
	rules := f.nodesRules(own)
	if want := []route.Plaintext{{Protocol: 50}, {Protocol: 17, Port: 28781}, {Protocol: 6, Port: 443}}; !slices.Equal(rules.Plaintext, want) {
		t.Errorf("%v pass, want %v", rules.Plaintext, want)
	}
	if len(rules.Outside) != 1 || rules.Outside[0] != addr("203.0.113.9") {
		t.Errorf("packets from %v pass", rules.Outside)
	}
}
