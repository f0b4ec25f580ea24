package policy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
)

// A node knows the addresses of its pods before the cluster does, and an address belongs to the pod that has it now.
func TestView(t *testing.T) {
	s := objects(t, fixture)
	key := func(name string) cluster.Key { return cluster.Key{Namespace: "shop", Name: name} }
	local := Local{Pods: []LocalPod{
		{Pod: key("client"), UID: "earlier", Addresses: addrs("10.1.1.8")},
		{Pod: key("client"), Addresses: addrs("10.1.1.9")},
		{Pod: key("late"), Addresses: addrs("10.1.1.7")},
		{Pod: key("web"), Addresses: addrs("10.1.2.2")},
		{Pod: key("db"), UID: "earlier", Addresses: addrs("10.1.1.6")},
	}}
	s.Pods.Slice()[4].UID = cluster.NewUID("now") // db, which is on n2
	s.Pods.Slice()[3].UID = cluster.NewUID("now") // client
	if got := s.Pods.Slice()[3].Key(); got != key("client") {
		t.Fatal(got)
	}
	type pod struct {
		Name, Addresses, App string
	}
	var got []pod
	for p := range local.View(s, "n1").Pods.All() {
		if p.Namespace != "shop" {
			continue
		}
		app, _ := p.Labels.Get("app")
		all := ""
		for _, a := range p.Addresses {
			all += a.String() + " "
		}
		got = append(got, pod{p.Name, all, app})
	}
	want := []pod{
		{"batch", "10.1.2.9 ", "client"}, {"client", "10.1.1.9 ", "client"}, {"client", "10.1.1.8 ", ""},
		{"db", "fd00:2::2 ", "db"}, // its other address belongs to a local pod
		{"db", "10.1.1.6 ", ""},
		{"host", "192.168.60.12 ", "client"}, {"late", "10.1.1.7 ", ""}, {"web", "10.1.2.2 ", "web"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if db := s.Pods.Slice()[4]; !slices.Equal(db.Addresses, addrs("10.1.2.2", "fd00:2::2")) {
		t.Errorf("the snapshot has changed: %+v", db)
	}
}

// All addresses of the node are its Node's, as in the tables: NodeLocal DNS has one that no Node object has. A node
// that the cluster does not list has them, too.
func TestViewHasTheNodesAddresses(t *testing.T) {
	s := objects(t, fixture+`
---
kind: NetworkPolicy
metadata: {namespace: shop, name: closed}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
`)
	local := Local{Addresses: addrs("169.254.20.10", "192.168.60.11"), Pods: []LocalPod{
		{Pod: cluster.Key{Namespace: "shop", Name: "web"}, Addresses: addrs("10.1.1.2")},
	}}
	for _, node := range []string{"n1", "n0", "n9"} {
		local := local
		if node != "n1" {
			local.Addresses = local.Addresses[:1] // the other one is n1's
		}
		tables, _ := NewCompiler(node).Compile(s, local)
		for _, a := range local.Addresses {
			traffic := evaluate.Traffic{
				Source: evaluate.Endpoint{Pod: local.Pods[0].Pod}, Destination: evaluate.Endpoint{Address: a}, Protocol: cluster.UDP, Port: 53,
			}
			compiled, _ := tables.Verdict(tables.Pods[addr("10.1.1.2")], Egress, a, uint8(cluster.UDP), 53)
			if v := evaluate.Evaluate(local.View(s, node), traffic); v.Err != nil || !v.Egress.Allowed || v.Egress.Allowed != compiled {
				t.Errorf("%s at %s: %+v, and the tables say %t", a, node, v, compiled)
			}
		}
	}
	if len(s.Nodes) != 2 || len(s.Nodes[0].Addresses) != 1 {
		t.Errorf("the snapshot has changed: %+v", s.Nodes)
	}
}

// Of a pod whose file was lost a starting agent knows only the addresses: the cluster's Pods give its name by these.
func TestNamed(t *testing.T) {
	s := &cluster.Snapshot{Pods: cluster.ListOf(
		&cluster.Pod{Namespace: "shop", Name: "ended", Ended: true, Addresses: addrs("10.1.1.4")},
		&cluster.Pod{Namespace: "shop", Name: "host", HostNetwork: true, Addresses: addrs("10.1.1.5")},
		&cluster.Pod{Namespace: "shop", Name: "web", Addresses: addrs("10.1.1.3")},
	)}
	madeUp := func(name, address string) LocalPod {
		return LocalPod{Pod: cluster.Key{Namespace: "default", Name: name}, Nameless: true, Addresses: addrs(address)}
	}
	local := Local{Pods: []LocalPod{
		madeUp("bl1", "10.1.1.3"), madeUp("bl2", "10.1.1.4"), madeUp("bl3", "10.1.1.5"),
		{Pod: cluster.Key{Namespace: "shop", Name: "late"}, Addresses: addrs("10.1.1.3")},
	}}
	var names []string
	for _, p := range local.Named(s).Pods {
		names = append(names, p.Pod.String())
	}
	if diff := cmp.Diff([]string{"default/bl2", "default/bl3", "shop/late", "shop/web"}, names); diff != "" {
		t.Error(diff)
	}
	if local.Pods[0].Pod.Name != "bl1" {
		t.Error("the former pods have changed")
	}
}
