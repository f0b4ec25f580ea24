package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// shop has a client, a server with a named port that lets clients in, a Service of it, and a pod that an unreadable policy closes.
func shop() *cluster.Snapshot {
	app := func(name string) cluster.Selector {
		return cluster.Selector{Requirements: []cluster.Requirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{name}}}}
	}
	client := app("client")
	pod := func(name, address string) *cluster.Pod {
		return &cluster.Pod{Namespace: "shop", Name: name, Node: "n1", Labels: cluster.NewLabels(map[string]string{"app": name}),
			Addresses: []netip.Addr{netip.MustParseAddr(address)}, Ports: []cluster.ContainerPort{{Name: "http", Protocol: cluster.TCP, Number: 8080}}}
	}
	return &cluster.Snapshot{
		Pods: []*cluster.Pod{pod("client", "10.1.1.2"), pod("db", "10.1.1.4"), pod("web", "10.1.1.3")},
		NetworkPolicies: []*cluster.NetworkPolicy{
			{Namespace: "shop", Name: "broken", Pods: app("db"), IsolatesEgress: true, Wrong: "nonsense"},
			{Namespace: "shop", Name: "web", Pods: app("web"), IsolatesIngress: true, Ingress: []cluster.PolicyRule{{
				Peers: []cluster.PolicyPeer{{Pods: &client}}, Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, First: 8080, Last: 8080}},
			}}},
		},
		Services: []*cluster.Service{{Namespace: "shop", Name: "front", Ports: []cluster.ServicePort{{Name: "www", Protocol: cluster.TCP, Number: 80}}}},
		EndpointSlices: []*cluster.EndpointSlice{{Namespace: "shop", Name: "front-x", Service: "front",
			Ports:     []cluster.EndpointPort{{Name: "www", Protocol: cluster.TCP, Number: 8080}},
			Endpoints: []cluster.Endpoint{{Address: netip.MustParseAddr("10.1.1.3"), Ready: true}, {Address: netip.MustParseAddr("10.9.9.9"), Ready: true}}}},
	}
}

func TestExplainPolicy(t *testing.T) {
	x := explainer{snapshot: shop()}
	for _, c := range []struct {
		from, to, port, protocol string
		allowed                  bool
		ways                     int
		says                     string // somewhere in the answer, or in the error
	}{
		{"shop/client", "shop/web", "8080", "TCP", true, 1, "shop/web spec.ingress[0]"},
		{"shop/client", "shop/web", "http", "TCP", true, 1, "shop/web port 8080/TCP"},
		{"shop/client", "shop/web", "9090", "TCP", false, 1, "shop/web spec.ingress[0] allows the peer, but not the port"},
		{"shop/client", "shop/web", "8080", "UDP", false, 1, "allows the peer"},
		{"shop/db", "10.1.1.3", "8080", "TCP", false, 1, "shop/web (10.1.1.3)"},
		{"203.0.113.9", "shop/web", "8080", "TCP", false, 1, "allows the port, but not the peer"},
		{"node", "shop/web", "9090", "TCP", true, 1, "own node"},
		{"shop/web", "node", "9090", "TCP", true, 1, "own node"},
		{"shop/client", "shop/web", "", "ICMP", false, 1, "allows the peer"},
		{"shop/client", "shop/front", "80", "TCP", true, 2, "shop/web (10.1.1.3) port 8080/TCP"},
		{"203.0.113.9", "shop/front", "www", "TCP", false, 2, "10.9.9.9 port 8080/TCP"},
		{"shop/db", "shop/client", "1", "TCP", false, 1, "closed: NetworkPolicy shop/broken is not understood: nonsense"},
		{"shop/client", "shop/db", "1", "TCP", true, 1, ""},
		{"shop/nobody", "shop/web", "80", "TCP", false, 0, "source: there is no pod shop/nobody"},
		{"shop/client", "shop/nobody", "80", "TCP", false, 0, "destination: there is no pod shop/nobody"},
		{"shop/client", "shop/front", "81", "TCP", false, 0, "Service shop/front has no port 81 of protocol TCP"},
		{"shop/client", "shop/web", "ftp", "TCP", false, 0, `no port "ftp"`},
		{"shop/client", "shop/web", "0", "TCP", false, 0, `no port "0"`},
		{"shop/client", "shop/web", "", "TCP", false, 0, "a port is needed"},
		{"shop/client", "shop/web", "80", "ICMP", false, 0, "ICMP has no ports"},
		{"shop/client", "shop/web", "80", "GRE", false, 0, `protocol "GRE" is none of`},
		{"client", "shop/web", "80", "TCP", false, 0, `"client" is neither NAMESPACE/POD nor an address`},
		{"node", "node", "80", "TCP", false, 0, "both ends are the node"},
	} {
		asked := c.from + " " + c.to + ":" + c.port + "/" + c.protocol
		a, err := x.answer(api.PolicyQuestion{From: c.from, To: c.to, Port: c.port, Protocol: c.protocol})
		if c.ways == 0 {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: error %v, want %q", asked, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", asked, err)
			continue
		}
		said := ""
		for _, w := range a.Ways {
			for _, j := range []api.PolicyJudgement{w.Egress, w.Ingress} {
				said += strings.Join(slices.Concat([]string{w.From, w.To, j.Reason}, j.Rules, j.Near), "\n") + "\n"
			}
		}
		if a.Allowed != c.allowed || len(a.Ways) != c.ways || !strings.Contains(said, c.says) {
			t.Errorf("%s: allowed %t in %d ways, want %t in %d, and %q in\n%s", asked, a.Allowed, len(a.Ways), c.allowed, c.ways, c.says, said)
		}
	}
}

// A pod that is closed here for want of room is not allowed, whatever rules say.
func TestExplainPolicyOfClosedPod(t *testing.T) {
	x := explainer{snapshot: shop(), closed: map[closedPod]string{{cluster.Key{Namespace: "shop", Name: "web"}, true}: "map policies is full"}}
	a, err := x.answer(api.PolicyQuestion{From: "shop/client", To: "shop/web", Port: "8080", Protocol: "TCP"})
	if err != nil || a.Allowed || a.Ways[0].Ingress.Reason != "closed: map policies is full" {
		t.Errorf("answer %+v, error %v", a, err)
	}
}

// The agent knows the addresses of its pods before the cluster does, and an address is that of the pod that has it now.
func TestWithLocal(t *testing.T) {
	s := shop()
	web, old := cluster.Key{Namespace: "shop", Name: "web"}, cluster.Key{Namespace: "shop", Name: "db"}
	with := withLocal(s, "n1", policyPodsOf(
		api.Endpoint{Pod: api.PodRef{Namespace: "shop", Name: "web"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.4")}},
		api.Endpoint{Attachment: api.Attachment{ContainerID: "c1"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.9")}},
	))
	if p := podOf(with, web); p.Addresses[0].String() != "10.1.1.4" || p.Labels != s.Pods[2].Labels || len(p.Addresses) != 1 {
		t.Errorf("pod with an interface here: %+v", p)
	}
	if p := podOf(with, old); len(p.Addresses) != 0 {
		t.Errorf("pod that had the address before: %+v", p)
	}
	if p := podOf(with, cluster.Key{Namespace: "default", Name: "c1"}); p == nil || p.Addresses[0].String() != "10.1.1.9" {
		t.Errorf("container without a pod: %+v", p)
	}
	if s.Pods[1].Addresses[0].String() != "10.1.1.4" || s.Pods[2].Addresses[0].String() != "10.1.1.3" {
		t.Error("the snapshot has changed")
	}
}

// Of a pod whose file was lost an agent that starts knows the addresses only: by these the cluster's Pods have its name.
func TestRecognised(t *testing.T) {
	at := func(a string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(a)} }
	s := &cluster.Snapshot{Pods: []*cluster.Pod{
		{Namespace: "shop", Name: "ended", Ended: true, Addresses: at("10.1.1.4")},
		{Namespace: "shop", Name: "host", HostNetwork: true, Addresses: at("10.1.1.5")},
		{Namespace: "shop", Name: "web", Addresses: at("10.1.1.3")},
	}}
	pods := policyPodsOf(
		api.Endpoint{HostDevice: "bl1", Addresses: at("10.1.1.3")},
		api.Endpoint{HostDevice: "bl2", Addresses: at("10.1.1.4")},
		api.Endpoint{HostDevice: "bl3", Addresses: at("10.1.1.5")},
		api.Endpoint{HostDevice: "bl4", Pod: api.PodRef{Namespace: "shop", Name: "late"}, Addresses: at("10.1.1.3")},
	)
	var names []string
	for _, p := range recognised(s, pods) {
		names = append(names, p.Pod.String())
	}
	if diff := cmp.Diff([]string{"default/bl2", "default/bl3", "shop/late", "shop/web"}, names); diff != "" {
		t.Error(diff)
	}
}
