package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// asSlices compares lists by what is in them.
var asSlices = cmp.Options{cmp.Transformer("pods", List[*Pod].Slice), cmp.Transformer("endpointSlices", List[*EndpointSlice].Slice)}

var addrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// nodeYAML is a Node with one address and one range, seven lines.
func nodeYAML(name, address, cidr string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %s}
spec:
  podCIDRs: [%s]
status:
  addresses: [{type: InternalIP, address: %s}]
`, name, cidr, address)
}

func node(name, address string, cidrs ...string) Node {
	n := Node{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	for _, cidr := range cidrs {
		n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(cidr))
	}
	return n
}

// nodesIn gives the Nodes of a manifest in its order.
func nodesIn(objects []keyedObject) (nodes []Node) {
	for _, o := range objects {
		nodes = append(nodes, o.object.(*NodeObject).Node)
	}
	return nodes
}

func TestParse(t *testing.T) {
	a := node("a", "192.0.2.1", "10.1.0.0/24")
	b := node("b", "192.0.2.2", "10.2.0.0/24")
	outside, leaving := a, a
	outside.ExternalIPs, leaving.Leaving = []netip.Addr{netip.MustParseAddr("198.51.100.1")}, true
	aYAML, bYAML := nodeYAML("a", "192.0.2.1", "10.1.0.0/24"), nodeYAML("b", "192.0.2.2", "10.2.0.0/24")
	indent := func(s string) string { return "- " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") + "\n" }

	tests := []struct {
		name, data string
		want       []Node
		ignored    int
	}{
		{"empty", "", nil, 0},
		{"comments only", "# nothing\n---\n# here\n", nil, 0},
		{"one", aYAML, []Node{a}, 0},
		{"several", "---\n" + aYAML + "---\n# second\n" + bYAML + "---\n", []Node{a, b}, 0},
		{"other kinds", aYAML + "---\napiVersion: v1\nkind: Secret\nanything: goes\n---\napiVersion: example.org/v1\nkind: Node\n", []Node{a}, 2},
		{"List", "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n" + indent(aYAML) + indent(bYAML), []Node{a, b}, 0},
		{"NodeList", "apiVersion: v1\nkind: NodeList\nitems:\n" + indent(strings.Replace(aYAML, "apiVersion: v1\nkind: Node\n", "", 1)), []Node{a}, 0},
		{"JSON", "{\n\t\"apiVersion\": \"v1\", \"kind\": \"Node\",\n\t\"metadata\": {\"name\": \"a\"},\n\t\"spec\": {\"podCIDRs\": [\"10.1.0.0/24\"]},\n" +
			"\t\"status\": {\"addresses\": [{\"type\": \"InternalIP\", \"address\": \"192.0.2.1\"}]}\n}\n", []Node{a}, 0},
		{"podCIDR alone", strings.Replace(aYAML, "podCIDRs: [10.1.0.0/24]", "podCIDR: 10.1.0.0/24", 1), []Node{a}, 0},
		{"both spellings", strings.Replace(aYAML, "  podCIDRs:", "  podCIDR: 10.1.0.0/24\n  podCIDRs:", 1), []Node{a}, 0},
		{"dual stack", nodeYAML("a", "192.0.2.1", "10.1.0.0/24, 'fd00:1::/64'"), []Node{node("a", "192.0.2.1", "10.1.0.0/24", "fd00:1::/64")}, 0},
		{"no range yet", "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n", []Node{{Name: "a"}}, 0},
		{"only internal addresses count", strings.Replace(aYAML, "[{", "[{type: Hostname, address: a}, {type: ExternalDNS, address: a.example}, {", 1), []Node{a}, 0},
		{"external addresses", strings.Replace(aYAML, "[{", "[{type: ExternalIP, address: 198.51.100.1}, {type: ExternalIP, address: none}, {", 1), []Node{outside}, 0},
		{"to be removed by the autoscaler", strings.Replace(aYAML, "spec:", "spec:\n  taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]", 1), []Node{leaving}, 0},
		{"deleted", strings.Replace(aYAML, "metadata: {", "metadata: {deletionTimestamp: '2026-01-01T00:00:00Z', ", 1), []Node{leaving}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, errs := parse("f.yaml", []byte(test.data))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(test.want, nodesIn(m.objects), addrs); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if len(m.ignored) != test.ignored {
				t.Errorf("ignored %v, want %d", m.ignored, test.ignored)
			}
		})
	}
}

func TestParseErrorsNameLineAndReason(t *testing.T) {
	good := nodeYAML("good", "192.0.2.9", "10.9.0.0/24") // lines 1 to 7, --- is line 8
	long := `apiVersion: v1
kind: Node
metadata:
  name: a
spec:
  podCIDRs:
  - 10.1.0.0/24
  - %s
status:
  addresses:
  - type: Hostname
    address: a
  - type: InternalIP
    address: %s
`
	tests := []struct {
		name, data string
		want       []string
	}{
		{"syntax", "a: [\n", []string{"f.yaml:1: did not find expected node content"}},
		{"syntax in the second document", good + "---\nkind: Node\n  name: x\n", []string{"f.yaml:10: mapping values are not allowed"}},
		{"indentation", "a: 1\nb:\n  c: 1\n  d: 2\n e: 3\nf: 4\n", []string{"f.yaml:5: did not find expected key"}},
		{"indentation in the second document", good + "---\na: 1\nb:\n  c: 1\n  - d\ne: 3\n", []string{"f.yaml:12: did not find expected key"}},
		{"unclosed list", good + "---\na: 1\nb: [1, 2\nc: 2\nd: 3\n", []string{"f.yaml:10: did not find expected ',' or ']'"}},
		{"JSON", "{\n\"a\": 1,\n\"b\": 2\n\"c\": 3\n}\n", []string{"f.yaml:4: did not find expected ',' or '}'"}},
		{"alias", good + "---\na: 1\nb: *c\nd: 2\n", []string{"f.yaml:10: unknown anchor 'c' referenced"}},
		{"control character", "a: 1\nb: \x01\nc: 2\n", []string{"f.yaml:2: control characters are not allowed"}},
		{"tab", "a:\n\t- b\n", []string{"f.yaml:2: "}},
		{"key twice", good + "---\nkind: Node\nkind: Node\n", []string{`f.yaml:10: mapping key "kind" already defined at line 9`}},
		{"not an object", "just text\n", []string{"f.yaml:1: not a Kubernetes object"}},
		{"no kind", "# c\nfoo: bar\n", []string{"f.yaml:2: not a Kubernetes object: it has no kind"}},
		{"no apiVersion", "kind: Secret\n", []string{"f.yaml:1: Secret: apiVersion is missing"}},
		{"unknown apiVersion", "kind: Service\napiVersion: v2\nmetadata: {namespace: shop, name: web}\n",
			[]string{`f.yaml:2: Service shop/web: apiVersion "v2" is not known; known: v1`}},
		{"unknown apiVersion of a list", "apiVersion: discovery.k8s.io/v2\nkind: EndpointSliceList\nitems:\n- metadata: {name: a}\n",
			[]string{`f.yaml:4: EndpointSlice a: apiVersion "discovery.k8s.io/v2" is not known; known: discovery.k8s.io/v1`}},
		{"NetworkPolicy of an unknown apiVersion without a name", "apiVersion: v1\nkind: NetworkPolicy\n",
			[]string{`f.yaml:1: NetworkPolicy default/: apiVersion "v1" is not known; known: networking.k8s.io/v1`, "metadata.name: missing"}},
		{"list without items", "apiVersion: v1\nkind: List\n", []string{"f.yaml:1: List without items"}},
		{"unknown field", good + "---\n" + strings.Replace(fmt.Sprintf(long, "'fd00::/64'", "192.0.2.1"), "podCIDRs", "podCIDRS", 1),
			[]string{`f.yaml:14: Node a: unknown field "spec.podCIDRS"`}},
		{"unknown field in a list item", "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n  spec:\n    foo: 1\n",
			[]string{`f.yaml:7: Node b: unknown field "spec.foo"`}},
		{"wrong type", strings.Replace(good, "[10.9.0.0/24]", "10.9.0.0/24", 1), []string{"f.yaml:5: spec.podCIDRs is a string, want []string"}},
		{"address", fmt.Sprintf(long, "'fd00::/64'", "192.0.2.300"), []string{`f.yaml:14: Node a: status.addresses[1].address: "192.0.2.300" is not an IP address`}},
		{"impossible address", fmt.Sprintf(long, "'fd00::/64'", "127.0.0.1"), []string{"f.yaml:14: Node a: status.addresses[1].address: 127.0.0.1 cannot be the address of a node"}},
		{"CIDR", fmt.Sprintf(long, "10.300.0.0/24", "192.0.2.1"), []string{`f.yaml:8: Node a: spec.podCIDRs[1]: "10.300.0.0/24" is not a CIDR`}},
		{"host bits", fmt.Sprintf(long, "'fd00::1/64'", "192.0.2.1"), []string{"f.yaml:8: Node a: spec.podCIDRs[1]: fd00::1/64 has host bits, fd00::/64 would not"}},
		{"two of a family", fmt.Sprintf(long, "10.2.0.0/24", "192.0.2.1"), []string{"f.yaml:8: Node a: spec.podCIDRs[1]: 10.2.0.0/24 is of the same family as 10.1.0.0/24"}},
		{"podCIDR contradicts podCIDRs", strings.Replace(good, "  podCIDRs:", "  podCIDR: 10.8.0.0/24\n  podCIDRs:", 1), []string{"f.yaml:5: Node good: spec.podCIDR: 10.8.0.0/24 is not the first"}},
		{"name", nodeYAML("Not_DNS", "192.0.2.1", "10.1.0.0/24"), []string{"f.yaml:3: Node Not_DNS: metadata.name: "}},
		{"no name", "apiVersion: v1\nkind: Node\n", []string{"f.yaml:1: Node : metadata.name: missing"}},
		{"everything at once", fmt.Sprintf(long, "x", "y") + "---\nfoo: bar\n", []string{"f.yaml:14: ", "f.yaml:8: ", "f.yaml:16: "}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, errs := parse("f.yaml", []byte(test.data))
			if m != nil || len(errs) != len(test.want) {
				t.Fatalf("got %v and %v, want %d errors", m, errs, len(test.want))
			}
			for i, want := range test.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("got  %v\nwant %s", errs[i], want)
				}
			}
		})
	}
}

// An API server allocates cluster IPs and node ports; a Service of a manifest without them applies with a problem.
func TestServiceWithoutAllocatedFields(t *testing.T) {
	for spec, want := range map[string][]string{
		"{clusterIP: 10.96.0.1}":                          nil,
		"{clusterIPs: ['fd00::1']}":                       nil,
		"{clusterIP: None}":                               nil,
		"{type: ExternalName, externalName: example.org}": nil,
		"{type: LoadBalancer, clusterIP: 10.96.0.1, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}":      nil,
		"{type: NodePort, clusterIP: 10.96.0.1, ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81}]}": {"spec.ports[1].nodePort"},
		"{type: LoadBalancer, ports: [{port: 80}]}":                                                                  {"spec.clusterIPs", "spec.ports[0].nodePort"},
	} {
		m, errs := parse("f.yaml", []byte("apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: "+spec+"\n"))
		var got []string
		for _, err := range append(errs, m.complaints...) {
			got = append(got, err.Error())
		}
		for i := range want {
			want[i] = "f.yaml:4: Service s: " + want[i] + " is missing: an API server would set it"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spec, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(nodeYAML("a", "192.0.2.1", "10.1.0.0/24")))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{}, null, 3]\n"))
	f.Add([]byte("&a [*a]"))
	f.Add([]byte(everything))
	f.Add([]byte("kind: Node\napiVersion: v1\nspec: {podCIDRs: [null]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, errs := parse("f", data); (m == nil) != (len(errs) > 0) {
			t.Errorf("got %v and %v", m, errs)
		}
	})
}
