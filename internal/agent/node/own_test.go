package node

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Addresses of a node's own devices are its own, whatever Nodes say.
func TestOwnAddressesAreOwn(t *testing.T) {
	ip := netip.MustParseAddr
	s := &cluster.Snapshot{Nodes: []cluster.Node{
		{Name: "a", Addresses: []netip.Addr{ip("192.0.2.1")}, Lost: []netip.Addr{ip("192.0.2.9"), ip("192.0.2.8")}},
		{Name: "b", Addresses: []netip.Addr{ip("192.0.2.2"), ip("192.0.2.9")}},
		{Name: "thief", Addresses: []netip.Addr{ip("192.0.2.100"), ip("192.0.2.3")}},
	}}
	got, problems := OwnFirst(s, "a", []netip.Addr{ip("192.0.2.1"), ip("192.0.2.9")}, []netip.Addr{ip("192.0.2.8"), ip("192.0.2.100")})
	if fmt.Sprint(got.Nodes[0].Addresses, got.Nodes[1].Addresses, got.Nodes[2].Addresses) != "[192.0.2.1 192.0.2.9] [192.0.2.2] [192.0.2.3]" || len(problems) != 3 {
		t.Errorf("nodes are %+v, problems %q", got.Nodes, problems)
	}
	if fmt.Sprint(s.Nodes[1].Addresses) != "[192.0.2.2 192.0.2.9]" {
		t.Errorf("the snapshot was changed: %+v", s.Nodes)
	}
	if same, problems := OwnFirst(s, "c", nil, nil); same != s || problems != nil {
		t.Error("a snapshot without conflicts is changed")
	}
}
