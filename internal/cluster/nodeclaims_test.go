package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimant is a Node of an API server, some minutes old.
func claimant(name string, minutes int, ready bool, cidr string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-time.Duration(minutes) * time.Minute))}}
	if cidr != "" {
		n.Spec.PodCIDRs = []string{cidr}
	}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	return n
}

// reducedNodes gives Nodes as from an API server.
func reducedNodes(t testing.TB, all []*corev1.Node) (nodes []*NodeObject) {
	t.Helper()
	for _, n := range all {
		object, err := Reduce(n)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, object.(*NodeObject))
	}
	return nodes
}

// resolveSorted resolves Nodes and sorts the results.
func resolveSorted(t *testing.T, order []*corev1.Node) (all []string, problems []string) {
	t.Helper()
	nodes, wrong := ResolveNodes(reducedNodes(t, order))
	for _, n := range nodes {
		all = append(all, fmt.Sprintf("%s%v%v", n.Name, n.Addresses, n.PodCIDRs))
	}
	for _, p := range wrong {
		problems = append(problems, p.Text)
	}
	slices.Sort(all)
	slices.Sort(problems)
	return all, problems
}

// All nodes decide conflicts between Nodes alike, whatever the order of arrival.
func TestNodesThatClaimTheSame(t *testing.T) {
	for _, c := range []struct {
		name            string
		nodes           []*corev1.Node
		want, complaint string
	}{
		{"a machine was replaced, both are ready: the newer one has the address",
			[]*corev1.Node{claimant("old", 60, true, "10.1.1.0/24", "192.0.2.1"), claimant("recent", 1, true, "10.1.2.0/24", "192.0.2.1")},
			"[old[][10.1.1.0/24] recent[192.0.2.1][10.1.2.0/24]]", "[Node old: status.addresses[0].address: address 192.0.2.1 is also that of Node recent]"},
		{"the newer one is not ready",
			[]*corev1.Node{claimant("old", 60, true, "10.1.1.0/24", "192.0.2.1"), claimant("recent", 1, false, "10.1.2.0/24", "192.0.2.1")},
			"[old[192.0.2.1][10.1.1.0/24] recent[][10.1.2.0/24]]", "[Node recent: status.addresses[0].address: address 192.0.2.1 is also that of Node old]"},
		{"a newer and ready one adds another's address to its own",
			[]*corev1.Node{claimant("victim", 60, false, "10.1.1.0/24", "192.0.2.1"), claimant("evil", 1, true, "10.1.2.0/24", "192.0.2.2", "192.0.2.1")},
			"[evil[192.0.2.2][10.1.2.0/24] victim[192.0.2.1][10.1.1.0/24]]", "[Node evil: status.addresses[1].address: address 192.0.2.1 is also that of Node victim]"},
		{"of the same age: the first by name",
			[]*corev1.Node{claimant("b", 1, true, "", "192.0.2.1"), claimant("a", 1, true, "", "192.0.2.1")},
			"[a[192.0.2.1][] b[][]]", "[Node b: status.addresses[0].address: address 192.0.2.1 is also that of Node a]"},
		{"a new node has the pod ranges of all: those who have had theirs keep them",
			[]*corev1.Node{claimant("a", 60, false, "10.1.1.0/24", "192.0.2.1"), claimant("b", 50, true, "10.1.2.0/24", "192.0.2.2"), claimant("evil", 1, true, "10.0.0.0/8", "192.0.2.3")},
			"[a[192.0.2.1][10.1.1.0/24] b[192.0.2.2][10.1.2.0/24]]", "[Node evil: spec.podCIDRs[0]: pod range overlaps (10.0.0.0/8 and 10.1.1.0/24) with that of Node a]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			for range 10 {
				random.Shuffle(len(c.nodes), func(i, j int) { c.nodes[i], c.nodes[j] = c.nodes[j], c.nodes[i] })
				got, problems := resolveSorted(t, c.nodes)
				if fmt.Sprint(got) != c.want || fmt.Sprint(problems) != c.complaint {
					t.Fatalf("nodes %v, want %s; problems %v, want %s", got, c.want, problems, c.complaint)
				}
			}
		})
	}
}

// A kubelet may write anything into its Node's status: addresses of pods, Services, other nodes and the internet are
// rejected, and the Node is named.
func TestVet(t *testing.T) {
	ip := netip.MustParseAddr
	services := []*Service{{Namespace: "shop", Name: "web", ClusterIPs: []netip.Addr{ip("10.96.0.9")}, LoadBalancerIPs: []netip.Addr{ip("192.0.2.80")}}}
	for _, c := range []struct {
		what     string
		networks []netip.Prefix
		claims   []string
		kept     string
		why      string
	}{
		{"its own", nil, []string{"192.0.2.2", "10.9.9.9"}, "[192.0.2.2 10.9.9.9]", ""},
		{"a pod's", nil, []string{"192.0.2.2", "10.1.1.7"}, "[192.0.2.2]", "10.1.1.7 in its status is refused: it is in 10.1.1.0/24, the pods' range of Node n1"},
		{"a Service's", nil, []string{"192.0.2.2", "10.96.0.9"}, "[192.0.2.2]", "10.96.0.9 in its status is refused: it is the cluster IP of Service shop/web"},
		{"a Service's alone", nil, []string{"10.96.0.9"}, "[]", "10.96.0.9 in its status is refused: it is the cluster IP of Service shop/web"},
		{"a load balancer's", nil, []string{"192.0.2.2", "192.0.2.80"}, "[192.0.2.2]", "192.0.2.80 in its status is refused: it is the load balancer's address of Service shop/web"},
		{"a load balancer's that is the node", nil, []string{"192.0.2.80"}, "[192.0.2.80]", ""},
		{"public", nil, []string{"192.0.2.2", "8.8.8.8"}, "[192.0.2.2]", "8.8.8.8 in its status is refused: it is public and not the first of its family (if it is the node's, name its network in --node-cidrs)"},
		{"public only", nil, []string{"8.8.8.8"}, "[]", "8.8.8.8 in its status is refused: it is public, and this cluster's nodes have private addresses (if it is the node's, name its network in --node-cidrs)"},
		{"metadata", nil, []string{"192.0.2.2", "169.254.169.254"}, "[192.0.2.2]", "169.254.169.254 in its status is refused: it is not an address at which others reach a node"},
		{"configured networks", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("8.8.8.0/24")}, []string{"10.9.9.9", "8.8.8.8"}, "[8.8.8.8]", "10.9.9.9 in its status is refused: it is not in the networks of --node-cidrs"},
	} {
		t.Run(c.what, func(t *testing.T) {
			n2 := Node{Name: "n2"}
			for _, a := range c.claims {
				n2.Addresses = append(n2.Addresses, ip(a))
			}
			v := Vetter{Self: "n1", Networks: c.networks}
			s := &Snapshot{Nodes: []Node{{Name: "n1", Addresses: []netip.Addr{ip("192.0.2.1")}, ExternalIPs: []netip.Addr{ip("9.9.9.9")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}}, n2}, Services: services}
			vetted, problems := v.Vet(s)
			if got := fmt.Sprint(vetted.Nodes[1].Addresses); got != c.kept || len(vetted.Nodes[0].ExternalIPs) != 1 {
				t.Errorf("n2 has %s, want %s", got, c.kept)
			}
			if c.why == "" && len(problems) > 0 || c.why != "" && (len(problems) != 1 || problems[0].Text != "Node n2: address "+c.why || problems[0].Key.Name != "n2") {
				t.Errorf("problems are %v, want %s", problems, c.why)
			}
			again, _ := v.Vet(s)
			if !Same(again.Nodes, vetted.Nodes) {
				t.Error("the list is another without a change")
			}
		})
	}
}

// Nodes are equal only if all fields are equal.
func TestEqualNode(t *testing.T) {
	values := map[reflect.Type]any{
		reflect.TypeFor[string](): "x", reflect.TypeFor[bool](): true,
		reflect.TypeFor[[]netip.Addr](): []netip.Addr{{}}, reflect.TypeFor[[]netip.Prefix](): []netip.Prefix{{}},
		reflect.TypeFor[time.Time](): time.Unix(1, 0), reflect.TypeFor[Labels](): NewLabels(map[string]string{"x": "y"}), reflect.TypeFor[Announced](): Announced{IPsec: "x"},
	}
	for field := range reflect.TypeFor[Node]().Fields() {
		var other Node
		reflect.ValueOf(&other).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(values[field.Type]))
		if other.Equal(&Node{}) || !other.Equal(&other) {
			t.Errorf("field %s makes no difference", field.Name)
		}
	}
}

// BenchmarkResolve changes one Node of 5,000.
func BenchmarkResolve(b *testing.B) {
	var all []*corev1.Node
	for i := range 5001 {
		all = append(all, claimant(fmt.Sprintf("node-%d", i), 1, true, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255), fmt.Sprintf("172.16.%d.%d", i>>8, i&255)))
	}
	objects := reducedNodes(b, all)
	vetter := Vetter{Self: "node-0"}
	b.ReportAllocs()
	for b.Loop() {
		for _, those := range [][]*NodeObject{objects, objects[:5000]} {
			nodes, _ := ResolveNodes(those)
			vetter.Vet(&Snapshot{Nodes: nodes})
		}
	}
}
