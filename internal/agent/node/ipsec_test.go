package node

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// A node without an end is no peer, with a reason, and keeps its tunnels. Addresses of this node count if the cluster is known.
func TestIPsecPeers(t *testing.T) {
	ipv4, ipv6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::2")
	own := []netip.Addr{ipv4}
	f := Facts{Config: Config{NodeName: "a", Encryption: EncryptionIPsec}, Uplink: &netdev.Uplink{}, Held: own, Snapshot: &cluster.Snapshot{Nodes: []cluster.Node{
		{Name: "a", Addresses: own}, {Name: "b", Addresses: []netip.Addr{ipv4.Next()}}, {Name: "c", Addresses: []netip.Addr{ipv6}},
	}}}
	in, wrong := f.IPsecPeers()
	if len(in.Peers) != 1 || in.Peers[0].Name != "b" || !slices.Equal(in.Unreachable, []string{"c"}) || wrong["c"] == "" || !slices.Equal(in.Addresses, own) {
		t.Errorf("input %+v, wrong %v", in, wrong)
	}
	f.Snapshot.Incomplete = true
	if in, _ := f.IPsecPeers(); len(in.Addresses) > 0 || !in.Partial {
		t.Errorf("of a part of the cluster: %+v", in)
	}
}
