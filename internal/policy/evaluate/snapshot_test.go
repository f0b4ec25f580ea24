package evaluate

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// theCluster is the fixture: two nodes, three namespaces and pods that differ in everything that policies match.
func theCluster() *cluster.Snapshot {
	labels := func(pairs ...string) cluster.Labels {
		all := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return cluster.NewLabels(all)
	}
	namespace := func(name string, pairs ...string) *cluster.Namespace {
		return &cluster.Namespace{Name: name, Labels: labels(append(pairs, "kubernetes.io/metadata.name", name)...)}
	}
	pod := func(namespace, name, node, addresses string, l cluster.Labels) *cluster.Pod {
		p := &cluster.Pod{Namespace: namespace, Name: name, Node: node, Labels: l}
		for a := range strings.FieldsSeq(addresses) {
			p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
		}
		return p
	}
	web := pod("prod", "web", "a", "10.1.1.2 fd00:1:1::2", labels("app", "web", "tier", "front"))
	web.Ports = []cluster.ContainerPort{
		{Name: "http", Protocol: cluster.TCP, Number: 8080}, {Name: "dns", Protocol: cluster.UDP, Number: 53},
	}
	db := pod("prod", "db", "b", "10.1.2.2 fd00:1:2::2", labels("app", "db"))
	db.Ports = []cluster.ContainerPort{{Name: "http", Protocol: cluster.TCP, Number: 9000}}
	host := pod("prod", "host", "a", "172.30.0.1", labels("app", "web"))
	host.HostNetwork = true
	hostB := pod("prod", "host-b", "b", "172.30.0.2", labels("app", "web"))
	hostB.HostNetwork = true
	ended := pod("prod", "ended", "a", "10.1.1.9", labels("app", "web"))
	ended.Ended = true
	followed := pod("prod", "followed", "a", "10.1.1.3", labels("app", "web"))
	followed.Ended = true
	return &cluster.Snapshot{
		Nodes: []cluster.Node{
			{Name: "a", Addresses: []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd00:172:30::1")}},
			{Name: "b", Addresses: []netip.Addr{netip.MustParseAddr("172.30.0.2")}},
		},
		Namespaces: []*cluster.Namespace{namespace("dev", "team", "x"), namespace("prod", "team", "y")},
		Pods: cluster.ListOf(
			pod("dev", "tool", "a", "10.1.1.3", labels("app", "tool")),
			pod("dev", "web", "b", "10.1.2.3 fd00:1:2::3", labels("app", "web")),
			db, ended, followed, host, hostB,
			pod("prod", "new", "", "", labels("app", "new")),
			web,
			pod("unheard", "pod", "a", "10.1.1.4", labels("app", "web")),
		),
	}
}

// with gives theCluster with policies: the spec of each, as YAML. They are in namespace prod and are named p0, p1 and
// so on.
func with(t *testing.T, specs ...string) *cluster.Snapshot {
	t.Helper()
	s := theCluster()
	for i, spec := range specs {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "p" + string(rune('0'+i))}}
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			t.Fatalf("%v\n%s", err, spec)
		}
		reduced, err := cluster.Reduce(p)
		if err != nil && !strings.Contains(spec, "# wrong") {
			t.Fatal(err)
		}
		s.NetworkPolicies = append(s.NetworkPolicies, reduced.(*cluster.NetworkPolicy))
	}
	return s
}

// endpoint parses an end: "namespace/pod", "namespace/pod@address", an address, or "node".
func endpoint(t *testing.T, text string) (e Endpoint) {
	t.Helper()
	if text == "node" {
		return Endpoint{Node: true}
	}
	text, e.Masqueraded = strings.CutPrefix(text, "masqueraded:")
	pod, address, both := strings.Cut(text, "@")
	if namespace, name, isPod := strings.Cut(pod, "/"); isPod {
		e.Pod = cluster.Key{Namespace: namespace, Name: name}
	} else {
		address, both = text, true
	}
	if both {
		a, err := netip.ParseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		e.Address = a
	}
	return e
}

var protocols = map[corev1.Protocol]cluster.Protocol{
	corev1.ProtocolTCP: cluster.TCP, corev1.ProtocolUDP: cluster.UDP, corev1.ProtocolSCTP: cluster.SCTP, "ICMP": 1, "ICMPv6": 58,
}
