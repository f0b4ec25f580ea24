package network

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Two agents give pods addresses of one IPPool of the lab's API server, and both know whose they are.
func TestPools(t *testing.T) {
	for _, c := range []Beeline{beelineMacvlan, beelineRouted} {
		t.Run(c.Name(), func(t *testing.T) { testPools(t, c) })
	}
}

func testPools(t *testing.T, c Beeline) {
	ctx := t.Context()
	lab := labFor(t, c, testbed.Options{IPv6: true})
	server, _, err := ServeObjects(ctx, lab)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.Put(append(Pools(c, lab), policies.Namespace(policies.Default, nil))...); err != nil {
		t.Fatal(err)
	}
	if err := c.Up(ctx, lab); err != nil {
		t.Fatal(err)
	}
	add := func(node int, name string, annotations map[string]string) *testbed.Pod {
		t.Helper()
		p := policies.Pod{Namespace: policies.Default, Name: name, Annotations: annotations}
		pod, err := AddKnownPod(ctx, c, lab, lab.Node(node), p, server.Put)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	client, near, far := add(0, "client", nil), add(0, "near", nil), add(1, "far", nil)
	begin := time.Now()
	probed := add(1, "probed", Probed)
	if took := time.Since(begin); took < 250*time.Millisecond {
		t.Errorf("ADD with probes takes %v", took)
	}
	for _, pair := range [][2]*testbed.Pod{{client, near}, {client, far}, {far, client}, {client, probed}} {
		if err := Verify(ctx, c, pair[0], pair[1]); err != nil {
			t.Error(err)
		}
	}
	nth := func(a netip.Addr) int { return int(a.AsSlice()[a.BitLen()/8-1]) }
	for _, pod := range []*testbed.Pod{client, near, far} {
		for _, a := range pod.Addresses {
			if n := nth(a); n < firstPodHost || n >= firstPodHost+podHosts || !slices.ContainsFunc(lab.Node(0).Addresses, func(p netip.Prefix) bool { return p.Contains(a) }) {
				t.Errorf("%s has %s", pod.Name, a)
			}
		}
	}
	if a := probed.Addresses[0]; nth(a) < firstPodHost+podHosts {
		t.Errorf("the pod of the other pool has %s", a)
	}
	pods := map[string]int{}
	for _, claim := range apiserver.Objects[*v1alpha1.IPClaim](server) {
		pods[claim.Spec.Pod.Name+" on "+claim.Spec.Node]++
	}
	if len(pods) != 4 || pods["client on n1"] != 2 || pods["far on n2"] != 2 {
		t.Errorf("claims: %v", pods)
	}

	// What DEL releases, the agent deletes, and it reports the use of the pool.
	if err := DelPod(ctx, c, lab, far); err != nil {
		t.Fatal(err)
	}
	var allocated int64
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		pool := apiserver.Objects[*v1alpha1.IPPool](server)[0]
		if allocated = pool.Status.Allocated; allocated == 2 && len(apiserver.Objects[*v1alpha1.IPClaim](server)) == 6 {
			return
		}
	}
	t.Errorf("%d claims, the pool reports %d addresses in use", len(apiserver.Objects[*v1alpha1.IPClaim](server)), allocated)
}
