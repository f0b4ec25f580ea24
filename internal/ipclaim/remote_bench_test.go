package ipclaim

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// BenchmarkRemote lists the addresses of 100,000 pods on 1,000 nodes, as after a change of one of them.
func BenchmarkRemote(b *testing.B) {
	a := New(Options{Node: "node-0", Log: calmLog}, nil)
	a.SetPools(poolsOf(pool("a", 1, "10.0.0.1-10.3.255.254")))
	all := make([]*cluster.IPClaim, 100_000)
	addr := netip.MustParseAddr("10.0.0.1")
	for i := range all {
		all[i] = &cluster.IPClaim{Address: addr, Pool: "a", Node: fmt.Sprint("node-", i%1000), Namespace: "shop", Pod: fmt.Sprint("pod-", i), ContainerID: fmt.Sprint(i), IfName: "eth0"}
		addr = addr.Next()
	}
	a.Replace(all)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		a.Set(all[i%len(all)])
		if got := len(a.Remote()); got != 999 {
			b.Fatal(got)
		}
	}
}
