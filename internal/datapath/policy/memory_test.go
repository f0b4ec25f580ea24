package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/policy"
	"github.com/beeline-cni/beeline/test/oracle"
)

// crowdOfPolicies is a cluster of a thousand pods, 250 of them on this node, and a thousand policies, one of which
// has 100,000 ipBlocks, half of them single addresses.
func crowdOfPolicies() oracle.Cluster {
	const pods, policies, blocks = 1000, 1000, 100_000
	app := func(i int) cluster.Labels { return cluster.NewLabels(map[string]string{"app": fmt.Sprint(i)}) }
	is := func(i int) cluster.Selector {
		return cluster.Selector{Requirements: []cluster.Requirement{{Key: "app", Operator: "In", Values: []string{fmt.Sprint(i)}}}}
	}
	s := &cluster.Snapshot{Nodes: []cluster.Node{{Name: oracle.Here}}, Namespaces: []*cluster.Namespace{{Name: "n"}}}
	var all []*cluster.Pod
	for i := range pods {
		p := &cluster.Pod{
			Namespace: "n", Name: fmt.Sprintf("pod-%04d", i), Node: oracle.There, Labels: app(i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})},
		}
		if i%4 == 0 {
			p.Node = oracle.Here
		}
		all = append(all, p)
	}
	s.Pods = cluster.ListOf(all...)
	for i := range policies {
		p := &cluster.NetworkPolicy{Namespace: "n", Name: fmt.Sprintf("policy-%04d", i), Pods: is(i), IsolatesIngress: true}
		rule := cluster.PolicyRule{Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, First: uint16(80 + i%7), Last: uint16(80 + i%7)}}}
		for j := range 10 {
			from := is((i + j) % pods)
			rule.Peers = append(rule.Peers, cluster.PolicyPeer{Pods: &from})
		}
		p.Ingress = []cluster.PolicyRule{rule}
		s.NetworkPolicies = append(s.NetworkPolicies, p)
	}
	var list cluster.PolicyRule
	r := rand.New(rand.NewPCG(1, 1))
	for i := range blocks {
		bits := 32
		if i%2 == 0 {
			bits = 20 + r.IntN(12)
		}
		a := netip.AddrFrom4([4]byte{byte(100 + r.IntN(100)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
		list.Peers = append(list.Peers, cluster.PolicyPeer{Block: netip.PrefixFrom(a, bits).Masked()})
	}
	s.NetworkPolicies[0].Ingress = append(s.NetworkPolicies[0].Ingress, list)
	return oracle.Cluster{Snapshot: s}
}

// The memory of a thousand policies for a thousand pods and 100,000 ipBlocks, in the kernel and in the agent.
func TestMemoryOfPolicies(t *testing.T) {
	d := openTable(t, config.Datapath{})
	w := crowdOfPolicies()
	tables, problems := policy.NewCompiler(oracle.Here).Compile(w.Snapshot, w.Local())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	before := fixtures.Heap()
	start := time.Now()
	if _, err := d.Policies.Sync(tables); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, written in %v", d.Policies.Counts(), time.Since(start))
	agent := fixtures.Heap() - before
	maps, err := d.DescribeMaps()
	if err != nil {
		t.Fatal(err)
	}
	var kernel uint64
	for _, m := range maps {
		if slices.Contains(load.PolicyMaps, m.Name) {
			t.Logf("%-16s %7d entries of %7d, %8.2f MB", m.Name, m.Entries, m.MaxEntries, float64(m.Bytes)/1e6)
			kernel += m.Bytes
		}
	}
	t.Logf("kernel: %.1f MB in maps of policies; agent: %.1f MB of heap for what was written", float64(kernel)/1e6, float64(agent)/1e6)
	if kernel > 32e6 {
		t.Errorf("maps take %d bytes", kernel)
	}
	if agent > 32e6 {
		t.Errorf("the agent keeps %d bytes", agent)
	}
	runtime.KeepAlive(tables)

	start = time.Now()
	if _, err := d.Policies.Sync(&policy.Tables{}); err != nil {
		t.Fatal(err)
	}
	t.Logf("deleted in %v", time.Since(start))
	holdsTables(t, d.Policies, &policy.Tables{})
}

// Without policies their maps take almost no memory.
func TestMemoryWithoutPolicies(t *testing.T) {
	maps, err := testmaps.Open(t, config.Datapath{EBPFRouting: true, Services: true}).DescribeMaps()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if (slices.Contains(load.PolicyMaps, m.Name) || m.Name == bpf.MapConntrack) && m.Bytes > 4096 {
			t.Errorf("map %s takes %d bytes", m.Name, m.Bytes)
		}
	}
}
