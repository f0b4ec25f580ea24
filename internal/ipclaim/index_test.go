package ipclaim

import (
	"net/netip"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// Other nodes' pods keep the routes to their addresses when a Node gets a range with them later; a claim that is made after that gets none.
func TestRemoteBeforeYoungerNode(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.9")
	subnet := netip.MustParsePrefix("192.0.2.0/24")
	pools := []*cluster.IPPool{{Name: "office", Subnets: []netip.Prefix{subnet}, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(subnet)}}}
	thief := []cluster.Node{{Name: "thief", Created: time.Unix(7, 0), PodCIDRs: []netip.Prefix{subnet}}}
	for created, want := range map[int64]int{6: 1, 7: 0, 8: 0} {
		x := newIndex("a")
		x.setPools(ippool.NewSet(pools, nil, nil))
		x.put(&cluster.IPClaim{Address: a, Pool: "office", Node: "b", ContainerID: "c", Created: time.Unix(created, 0)})
		if got := x.remoteAddresses(); len(got["b"]) != 1 {
			t.Errorf("without another Node: %v", got)
		}
		x.setPools(ippool.NewSet(pools, thief, nil))
		if got := x.remoteAddresses(); len(got["b"]) != want {
			t.Errorf("created at %d, the pod of node b has %v, want %d addresses", created, got, want)
		}
	}
}
