package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestTwoFilesClaimOneAddress adds endpoint files with a pod's address and a device that does not exist. After a
// restart of the agent the pod keeps its address, and the node is ready.
func TestTwoFilesClaimOneAddress(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	p := c.addPods()
	n := c.nodes[0]
	c.kill(n)
	for _, name := range []string{"bl0000000000000", "blfffffffffffff"} { // sorted before and after the pod's file
		data, err := json.Marshal(agentapi.Endpoint{HostDevice: name, HostIfIndex: 4711, Addresses: p.a.Addresses})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(n.stateDir(), "endpoints", name+".json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.start(n, current(t))
	c.waitReady(n)
	endpoints, err := n.api().Endpoints(t.Context())
	if err != nil || len(endpoints) != 2 {
		t.Errorf("endpoints are %+v, %v; want those of a and b", endpoints, err)
	}
	if err := c.reach(p.far, p.a); err != nil {
		t.Error(err)
	}
}

// TestIPPool gives pods addresses of a pool. They reach the node, and the node's pods with addresses of its own range. They
// keep their addresses when the agent dies, and give them back.
func TestIPPool(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	before := c.addPod(n, "before")
	c.writeManifest("pools.yaml", []byte(`
apiVersion: networking.beeline.dev/v1alpha1
kind: IPPool
metadata: {name: office}
spec: {subnets: [198.51.100.0/24, "2001:db8:77::/64"], ranges: [198.51.100.10-198.51.100.12, "2001:db8:77::10-2001:db8:77::12"], default: true}
`))
	eventually(t, func() error {
		pools, err := n.api().IPPools(t.Context())
		if err != nil || len(pools) != 1 {
			return fmt.Errorf("pools are %+v, %w", pools, err)
		}
		return nil
	})
	wantFree := func(free int64) {
		t.Helper()
		eventually(t, func() error {
			pools, err := n.api().IPPools(t.Context())
			if err != nil || len(pools[0].Families) != 2 || pools[0].Families[0].Free != free || pools[0].Families[1].Free != free {
				return fmt.Errorf("want %d free of each family: %+v, %w", free, pools, err)
			}
			return nil
		})
	}
	var pods []*testbed.Pod
	for i := range 3 {
		pod := c.addPod(n, fmt.Sprint("pooled-", i))
		if len(pod.Addresses) != 2 || !netip.MustParsePrefix("198.51.100.8/29").Contains(pod.Addresses[0]) {
			t.Fatalf("addresses are %v", pod.Addresses)
		}
		pods = append(pods, pod)
	}
	wantFree(0)
	excess := c.newPod(n, "excess")
	_, err := c.standard(n).add(t.Context(), excess, runtimeConf(excess))
	wantCode(t, "ADD with an exhausted pool", err, codeExhausted, "IPPool office", "no free")
	for range 2 {
		c.distinct(append(pods, before))
		for i, p := range pods {
			if err := errors.Join(c.reach(p, before), c.reach(before, p), c.reach(withoutSource(asPod(n, before)), p), c.reach(p, pods[(i+1)%3])); err != nil {
				t.Error(err)
			}
		}
		c.kill(n)
		c.start(n, current(t))
		c.waitReady(n)
	}
	wantFree(0)
	c.delPod(n, pods[1])
	wantFree(1)
	if got := c.addPod(n, "next").Addresses; got[0] != pods[1].Addresses[0] {
		t.Errorf("the only free address is %v, and the next pod has %v", pods[1].Addresses, got)
	}
}
