package flow

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func end(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// The fixture: pods of two nodes, one of them in the host network, a Service with a node port, and an external
// address.
var (
	cart = &cluster.Pod{Namespace: "shop", Name: "cart", Node: "a", Addresses: []netip.Addr{addr("10.1.1.2"), addr("fd00:1:1::2")}}
	db   = &cluster.Pod{Namespace: "shop", Name: "db-0", Node: "b", Addresses: []netip.Addr{addr("10.1.2.2")}}
	host = &cluster.Pod{Namespace: "kube-system", Name: "proxy", Node: "b", HostNetwork: true, Addresses: []netip.Addr{addr("172.30.0.2")}}
	over = &cluster.Pod{Namespace: "shop", Name: "job", Node: "b", Ended: true, Addresses: []netip.Addr{addr("10.1.2.9")}}

	database = &cluster.Service{
		Namespace: "shop", Name: "db", ClusterIPs: []netip.Addr{addr("10.96.0.5")}, LoadBalancerIPs: []netip.Addr{addr("192.0.2.10")},
		Ports: []cluster.ServicePort{{Protocol: cluster.TCP, Number: 5432, NodePort: 30432}},
	}
	slice = &cluster.EndpointSlice{
		Namespace: "shop", Name: "db-1", Service: "db", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Number: 15432}},
		Endpoints: []cluster.Endpoint{{Address: db.Addresses[0], Ready: true}},
	}
	nodes = []cluster.Node{
		{Name: "a", Addresses: []netip.Addr{addr("172.30.0.1")}},
		{Name: "b", Addresses: []netip.Addr{addr("172.30.0.2")}, ExternalIPs: []netip.Addr{addr("192.0.2.2")}},
	}
)

func someObjects() *cluster.Snapshot {
	return &cluster.Snapshot{
		Nodes: nodes, Pods: cluster.ListOf(host, cart, db, over), Services: []*cluster.Service{database}, EndpointSlices: cluster.ListOf(slice),
	}
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// who formats an end as people see it, with its Services.
func who(n *Names, at time.Time, e string, protocol cluster.Protocol) string {
	r := n.Record(Event{Time: at, Destination: end(e), Protocol: uint8(protocol)})
	f := r.Flow().Destination
	name := f.Kind + " " + f.Namespace + "/" + f.Name + "@" + f.Node
	for _, s := range f.Services {
		name += " of " + s
	}
	return name
}

const external = " /@"

func TestNames(t *testing.T) {
	n := NewNames("a")
	if got := who(n, noon, "10.1.1.2:1", cluster.TCP); got != external {
		t.Errorf("without a snapshot: %q", got)
	}
	n.Deliver(someObjects())
	for _, c := range []struct {
		end      string
		protocol cluster.Protocol
		want     string
	}{
		{"10.1.1.2:80", cluster.TCP, "pod shop/cart@a"},
		{"[fd00:1:1::2]:80", cluster.UDP, "pod shop/cart@a"},
		{"10.1.2.2:15432", cluster.TCP, "pod shop/db-0@b of shop/db"},
		{"10.1.2.2:15432", cluster.UDP, "pod shop/db-0@b"},
		{"10.1.2.2:1", cluster.TCP, "pod shop/db-0@b"},
		{"172.30.0.2:80", cluster.TCP, "node /b@b"}, // and not the pod in the host network
		{"192.0.2.2:80", cluster.TCP, "node /b@b"},
		{"172.30.0.1:30432", cluster.TCP, "node /a@a of shop/db"},
		{"172.30.0.1:30432", cluster.UDP, "node /a@a"},
		{"10.96.0.5:5432", cluster.TCP, "service shop/db@"},
		{"10.96.0.5:9", cluster.UDP, "service shop/db@"}, // a port that it does not have
		{"192.0.2.10:5432", cluster.TCP, "service shop/db@"},
		{"192.0.2.10:9", cluster.TCP, external}, // a load balancer's address may be shared
		{"10.1.2.9:80", cluster.TCP, external},  // an ended pod has no address
		{"203.0.113.7:443", cluster.TCP, external},
		{"203.0.113.7:30432", cluster.TCP, external},
	} {
		if got := who(n, noon, c.end, c.protocol); got != c.want {
			t.Errorf("%s %s is %q, expected %q", c.protocol, c.end, got, c.want)
		}
	}
}

// Names follow the snapshots. Those of deleted pods are kept for a while, unless another pod gets the address.
func TestNamesChange(t *testing.T) {
	n := NewNames("a")
	n.Deliver(someObjects())
	who(n, noon, "10.1.1.2:1", cluster.TCP)

	moved := *db
	moved.Name, moved.Addresses = "another", cart.Addresses[:1] // its name comes before unchanged names
	both := someObjects()
	both.Pods = cluster.ListOf(host, &moved, cart, over) // the former owner of the address still exists
	n.Deliver(both)
	who(n, noon, "10.1.1.2:1", cluster.TCP)
	s := someObjects()
	s.Pods = cluster.ListOf(host, &moved, over)
	s.Services, s.EndpointSlices = nil, cluster.List[*cluster.EndpointSlice]{}
	s.Nodes = nodes[1:]
	n.Deliver(s)
	later := noon.Add(time.Minute)
	for e, want := range map[string]string{
		"10.1.1.2:80": "pod shop/another@b", "[fd00:1:1::2]:80": "pod shop/cart@a", "10.1.2.2:15432": "pod shop/db-0@b",
		"10.96.0.5:5432": external, "172.30.0.1:30432": external, "172.30.0.2:30432": "node /b@b",
	} {
		if got := who(n, later, e, cluster.TCP); got != want {
			t.Errorf("%s is %q, expected %q", e, got, want)
		}
	}
	if got := who(n, later.Add(keptGone+time.Minute), "10.1.2.2:1", cluster.TCP); got != external {
		t.Errorf("long after its deletion: %q", got)
	}
	if got := who(n, later.Add(keptGone+time.Minute), "10.1.1.2:1", cluster.TCP); got != "pod shop/another@b" {
		t.Errorf("the new owner of its address: %q", got)
	}
}

// The number of kept names is bounded.
func TestNamesAreBounded(t *testing.T) {
	n := NewNames("a")
	for i := range 3 * keptGoneMax {
		pod := &cluster.Pod{Namespace: "x", Name: "p", Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}}
		n.Deliver(&cluster.Snapshot{Pods: cluster.ListOf(pod)})
		n.Record(Event{Time: noon})
	}
	if len(n.pods) > 1 || len(n.kept) > keptGoneMax || len(n.gone) > keptGoneMax || len(n.named) > keptNamed {
		t.Errorf("%d names, %d of deleted pods (%d times), %d Owners", len(n.pods), len(n.kept), len(n.gone), len(n.named))
	}
}

// The agent knows its own pods before the cluster reports them, and keeps their names for a while.
func TestNamesOfThisNode(t *testing.T) {
	n := NewNames("a")
	n.Deliver(someObjects())
	mine := Local{Pod: cluster.Key{Namespace: "shop", Name: "new"}, Addresses: cart.Addresses[:1], Device: 7}
	n.SetLocals([]Local{mine})
	if got := who(n, noon, "10.1.1.2:80", cluster.TCP); got != "pod shop/new@a" {
		t.Errorf("its own pod is %q", got)
	}
	r := n.Record(Event{Time: noon, Device: 7, Kind: KindDropped, Program: fromPod})
	if got := r.Flow().DevicePod; got != "shop/new" {
		t.Errorf("its device is that of %q", got)
	}
	n.SetLocals([]Local{{Pod: cluster.Key{Namespace: "shop", Name: "x"}, Addresses: []netip.Addr{addr("10.1.1.77")}}})
	n.SetLocals(nil)
	if got := who(n, time.Now(), "10.1.1.77:80", cluster.TCP); got != "pod shop/x@a" {
		t.Errorf("its own deleted pod is %q", got)
	}
}

// The node has addresses that its Node does not list. A pod with one of them takes precedence.
func TestNamesOfThisNodesAddresses(t *testing.T) {
	n := NewNames("a")
	n.Deliver(someObjects())
	n.SetAddresses([]netip.Addr{addr("10.1.2.2"), addr("127.0.0.1"), addr("169.254.20.10"), addr("192.0.2.2")})
	for e, want := range map[string]string{
		"169.254.20.10:53": "node /a@a", "169.254.20.10:30432": "node /a@a of shop/db", "169.254.20.11:53": external,
		"10.1.2.2:15432": "pod shop/db-0@b of shop/db", "192.0.2.2:80": "node /a@a", "172.30.0.1:80": "node /a@a",
	} {
		if got := who(n, noon, e, cluster.TCP); got != want {
			t.Errorf("%s is %q, expected %q", e, got, want)
		}
	}
}

func TestRecordFlow(t *testing.T) {
	n := NewNames("a")
	n.Deliver(someObjects())
	n.SetPolicies(map[policy.Policy]cluster.Key{5: {Namespace: "shop", Name: "to-db"}})
	n.SetPolicies(map[policy.Policy]cluster.Key{6: {Namespace: "shop", Name: "later"}}) // the old number keeps its name
	r := n.Record(Event{
		Time: noon, Created: noon.Add(-time.Second), First: true, Kind: KindClosed, Protocol: uint8(cluster.TCP), TCPFlags: 0x12, Source: end("10.1.1.2:40000"), Destination: end("10.1.2.2:15432"),
		SourceIdentity: 0x80000001, DestinationIdentity: 0x80000002, Packets: [2]uint64{4, 3}, Bytes: [2]uint64{400, 300}, Ingress: 99, Egress: 5,
		Program: fromPod, Device: 3,
	})
	want := agentapi.Flow{
		Time: noon, Created: noon.Add(-time.Second), First: true, Event: "closed", Verdict: "allowed", Protocol: "TCP",
		Source: agentapi.FlowEnd{Address: addr("10.1.1.2"), Port: 40000, Kind: "pod", Namespace: "shop", Name: "cart", Node: "a", Identity: 0x80000001},
		Destination: agentapi.FlowEnd{
			Address: addr("10.1.2.2"), Port: 15432, Kind: "pod", Namespace: "shop", Name: "db-0", Node: "b", Identity: 0x80000002, Services: []string{"shop/db"},
		},
		EgressPolicy: "shop/to-db", IngressPolicy: "policy 99", Program: fromPod, Device: 3, TCPFlags: []string{"SYN", "ACK"},
		Packets: 4, Bytes: 400, ReplyPackets: 3, ReplyBytes: 300,
	}
	if diff := cmp.Diff(want, r.Flow(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("flow (-want +got):\n%s", diff)
	}
	for number, name := range map[uint8]string{0: "", 1: "ICMP", 58: "ICMPv6", 132: "SCTP", 47: "47"} {
		if got := protocolText(number); got != name {
			t.Errorf("protocol %d is %q", number, got)
		}
	}
	for kind, verdict := range map[Kind]string{KindNew: agentapi.FlowAllowed, KindReplied: agentapi.FlowAllowed, KindClosed: agentapi.FlowAllowed, KindDropped: agentapi.FlowDropped, KindRevoked: agentapi.FlowDropped} {
		if kind.Verdict() != verdict {
			t.Errorf("%s is %s", kind, kind.Verdict())
		}
	}
}

// The constants equal those of the API.
func TestWordsOfTheAPI(t *testing.T) {
	var got []string
	for _, k := range Kinds {
		got = append(got, k.String())
	}
	want := []string{agentapi.FlowEventNew, agentapi.FlowEventReplied, agentapi.FlowEventClosed, agentapi.FlowEventDropped, agentapi.FlowEventRevoked}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Endpoints of an EndpointSlice share the list of their Services, also with several Services, and lose one Service at
// a time.
func TestEndpointsShareLists(t *testing.T) {
	of := func(service string, addresses ...string) *cluster.EndpointSlice {
		s := &cluster.EndpointSlice{Namespace: "shop", Name: service + "-1", Service: service, Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Number: 80}}}
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, cluster.Endpoint{Address: addr(a), Ready: true})
		}
		return s
	}
	n := NewNames("a")
	expect := func(step string, slices []*cluster.EndpointSlice, lists int, want map[string]string) {
		t.Helper()
		n.Deliver(&cluster.Snapshot{EndpointSlices: cluster.ListOf(slices...)})
		n.Record(Event{Time: noon})
		for e, services := range want {
			if got := who(n, noon, e+":80", cluster.TCP); got != external+services {
				t.Errorf("%s: %s is %q, want %q", step, e, got, external+services)
			}
		}
		different := map[*[]cluster.Key]bool{}
		for _, list := range n.endpoints {
			different[list] = true
		}
		if len(different) != lists || len(n.endpoints) != len(want) {
			t.Errorf("%s: %d endpoints have %d lists, want %d and %d", step, len(n.endpoints), len(different), len(want), lists)
		}
	}
	db, web := of("db", "10.1.1.2", "10.1.1.3", "10.1.1.4", "10.1.1.4"), of("web", "10.1.1.3", "10.1.1.4", "10.1.1.5")
	expect("one Service", []*cluster.EndpointSlice{db}, 1, map[string]string{"10.1.1.2": " of shop/db", "10.1.1.3": " of shop/db", "10.1.1.4": " of shop/db"})
	expect("two", []*cluster.EndpointSlice{db, web}, 3, map[string]string{
		"10.1.1.2": " of shop/db", "10.1.1.3": " of shop/db of shop/web", "10.1.1.4": " of shop/db of shop/web", "10.1.1.5": " of shop/web",
	})
	expect("the other", []*cluster.EndpointSlice{web}, 2, map[string]string{"10.1.1.3": " of shop/web", "10.1.1.4": " of shop/web", "10.1.1.5": " of shop/web"})
	expect("none", nil, 0, nil)
}
