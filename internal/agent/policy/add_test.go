package policy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/cluster"
	dppolicy "github.com/beeline-cni/beeline/internal/datapath/policy"
	"github.com/beeline-cni/beeline/internal/policy"
)

// A pod with an address that the tables have, or are about to have, for another pod does not get that pod's identity.
func TestAddressesThatTablesKnow(t *testing.T) {
	address := []netip.Addr{webAddress}
	other := policy.LocalPod{Pod: cluster.Key{Namespace: "free", Name: "next"}, Addresses: address}
	expect := func(step string, p *Policies, want bool) {
		t.Helper()
		if got := p.mayKnow(address); got != want {
			t.Errorf("%s: may know the address %t, want %t", step, got, want)
		}
	}
	table, p := newFakePolicies()
	expect("nothing is known", p, false)
	table.identities = map[netip.Addr]policy.Identity{webAddress: policy.IdentityPod}
	expect("of an earlier agent", p, true)

	table, p = newFakePolicies()
	s := policySnapshot("shop")
	s.Pods.Slice()[0].Addresses = address
	p.Update(s)
	table.during = func() { expect("a pass with the snapshot's pod", p, true) }
	mustPass(t, p)
	table.during = nil
	expect("it is of another node", p, false) // as the fake compiler has it

	p.UpdatePods([]policy.LocalPod{webLocal})
	table.during = func() { expect("a pass with a pod here", p, true) }
	mustPass(t, p)
	table.during = nil
	p.UpdatePods([]policy.LocalPod{other})
	expect("its identity is active", p, true)
	mustPass(t, p)
	expect("its own", p, true)

	table.fail = &dppolicy.SyncError{Err: errors.New("full")}
	p.UpdatePods(nil)
	_ = p.Pass()
	expect("gone, and something else does not fit", p, false)
	p.UpdatePods([]policy.LocalPod{webLocal})
	_ = p.Pass()
	table.fail = errors.New("no memory")
	p.UpdatePods(nil)
	_ = p.Pass()
	expect("could not be deleted", p, true)
}

// The time of a change starts with its event, also if another one came before a pass, and if it could not be written
// at first.
func TestChangesAreCountedFromTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, p := newFakePolicies()
		registry := prometheus.NewRegistry()
		registry.MustRegister(p.metrics.changes)
		expect := func(step string, changes uint64, seconds float64) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			if h := families[0].GetMetric()[0].GetHistogram(); h.GetSampleCount() != changes || h.GetSampleSum() != seconds {
				t.Errorf("%s: %d changes took %g s, want %d and %g", step, h.GetSampleCount(), h.GetSampleSum(), changes, seconds)
			}
		}
		p.Update(policySnapshot("shop"))
		time.Sleep(2 * time.Second)
		p.Update(policySnapshot("other", "shop"))
		time.Sleep(time.Second)
		mustPass(t, p)
		expect("two in one pass", 1, 3)
		p.UpdatePods([]policy.LocalPod{webLocal})
		mustPass(t, p)
		expect("nothing of the cluster's", 1, 3)
		table.fail = errors.New("no memory")
		p.Update(policySnapshot("shop"))
		_ = p.Pass()
		time.Sleep(4 * time.Second)
		table.fail = nil
		mustPass(t, p)
		expect("at the second attempt", 2, 7)
	})
}

// Beside kube-proxy egress rules are not fully enforced, where they deny anything to local pods.
func TestBesideKubeProxy(t *testing.T) {
	_, p := newFakePolicies()
	egress := func(name string, rules ...cluster.PolicyRule) *cluster.NetworkPolicy {
		return &cluster.NetworkPolicy{Namespace: "shop", Name: name, IsolatesEgress: true, Egress: rules}
	}
	s := &cluster.Snapshot{NetworkPolicies: []*cluster.NetworkPolicy{
		egress("all", cluster.PolicyRule{}), egress("away"), egress("clients", cluster.PolicyRule{Peers: []cluster.PolicyPeer{{Pods: &cluster.Selector{}}}}),
		{Namespace: "shop", Name: "in", IsolatesIngress: true}, egress("nothing"),
	}}
	selected := []cluster.Key{}
	for _, of := range s.NetworkPolicies {
		if of.Name != "away" {
			selected = append(selected, of.Key())
		}
	}
	p.compile = func(*cluster.Snapshot, policy.Local) (*policy.Tables, []policy.Problem) {
		return &policy.Tables{Selected: map[cluster.Key][]cluster.Key{webLocal.Pod: selected}}, nil
	}
	p.Update(s)
	mustPass(t, p)
	for services, want := range map[lb.Mode]string{lb.ModeKubeProxy: "shop/clients, shop/nothing", lb.ModeEBPF: ""} {
		p.options.Services = services
		problems := p.Problems()
		if got := strings.Join(problems, "\n"); want == "" && got != "" || !strings.HasSuffix(got, want) {
			t.Errorf("services %s: problems %q", services, problems)
		}
	}
}
