package policy

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

func sandboxOfWeb(container, uid, address string) agentapi.Endpoint {
	return agentapi.Endpoint{
		Attachment: agentapi.Attachment{ContainerID: container}, Pod: agentapi.PodRef{Namespace: "shop", Name: "web", UID: uid},
		HostDevice: "bl" + container, Addresses: []netip.Addr{netip.MustParseAddr(address)},
	}
}

// A pod that is recreated before the end of the old one was noticed is another pod.
func TestPolicyPodsOf(t *testing.T) {
	of := sandboxOfWeb
	for name, c := range map[string]struct {
		endpoints []agentapi.Endpoint
		pods      int
	}{
		"two interfaces":     {[]agentapi.Endpoint{of("c1", "u1", "10.1.1.2"), of("c1", "u1", "10.1.1.3")}, 1},
		"an old one":         {[]agentapi.Endpoint{of("c1", "u1", "10.1.1.2"), of("c2", "u2", "10.1.1.3")}, 2},
		"a new sandbox":      {[]agentapi.Endpoint{of("c1", "u1", "10.1.1.2"), of("c2", "u1", "10.1.1.3")}, 1},
		"one without a UID":  {[]agentapi.Endpoint{of("c1", "", "10.1.1.2"), of("c2", "u1", "10.1.1.3")}, 2},
		"both without a UID": {[]agentapi.Endpoint{of("c1", "", "10.1.1.2"), of("c2", "", "10.1.1.3")}, 1},
	} {
		pods := LocalPods(c.endpoints...)
		addresses := 0
		for _, p := range pods {
			addresses += len(p.Addresses)
		}
		if len(pods) != c.pods || addresses != 2 {
			t.Errorf("%s: %+v", name, pods)
		}
	}
}

// Two sandboxes of a pod without a UID are both the cluster's Pod, as long as they exist: the later one from its ADD,
// the earlier one until its DEL. It makes no difference that the cluster has only one of the addresses.
func TestPoliciesOfTwoSandboxes(t *testing.T) {
	before, after := netip.MustParseAddr("10.1.1.30"), netip.MustParseAddr("10.1.1.5")
	old, latest := sandboxOfWeb("c1", "", before.String()), sandboxOfWeb("c2", "", after.String())
	for name, listed := range map[string]netip.Addr{"the earlier one's": before, "the later one's": after} {
		t.Run(name, func(t *testing.T) {
			snapshot := shop()
			for pod := range snapshot.Pods.All() {
				pod.UID = cluster.NewUID("u-" + pod.Name)
				if pod.Name == "web" {
					pod.Addresses = []netip.Addr{listed}
				}
			}
			table, p := newFakePolicies()
			p.compile = policy.NewCompiler("n1").Compile
			p.Update(snapshot)
			// expect takes sets that apply to one of both, if it exists.
			expect := func(step string, has map[netip.Addr]bool) {
				t.Helper()
				tables := p.current().tables
				for _, a := range []netip.Addr{before, after} {
					_, known := tables.Peers.Get(a)
					sets := table.of(a)
					if governed := sets.Ingress != policy.NotIsolated && sets.Ingress != policy.DenyAll && sets.Egress == policy.NotIsolated; governed != has[a] || known != has[a] {
						t.Errorf("%s: %s has sets %+v, and has an identity: %t", step, a, sets, known)
					}
				}
				one, _ := tables.Peers.Get(before)
				other, _ := tables.Peers.Get(after)
				if has[before] && has[after] && (table.of(before) != table.of(after) || one != other) {
					t.Errorf("%s: sets %+v and %+v, identities %v and %v", step, table.of(before), table.of(after), one, other)
				}
			}
			p.UpdatePods(LocalPods(old))
			mustPass(t, p)
			expect("the earlier one", map[netip.Addr]bool{before: true})

			governed := table.of(before)
			number, err := p.close(LocalPods(old, latest), latest.Addresses)
			if err != nil {
				t.Fatal(err)
			}
			if table.of(before) != governed || table.of(after) != closedSets {
				t.Errorf("while the later one is added: sets %+v and %+v", table.of(before), table.of(after))
			}
			if err := p.PassAt(number); err != nil {
				t.Fatal(err)
			}
			expect("both", map[netip.Addr]bool{before: true, after: true})
			for left, of := range map[netip.Addr]agentapi.Endpoint{before: old, after: latest} {
				p.UpdatePods(LocalPods(of))
				mustPass(t, p)
				expect("one of them", map[netip.Addr]bool{left: true})
			}
		})
	}
}
