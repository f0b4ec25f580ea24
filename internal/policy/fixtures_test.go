package policy

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/cluster"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, addr(text))
	}
	return all
}

// fixture has the pods of the tests: node n1 with shop/web, shop/client and bank/teller on it, and pods on n2.
const fixture = `
kind: Namespace
metadata: {name: bank, labels: {team: money, level: high}}
---
kind: Namespace
metadata: {name: shop, labels: {team: trade, level: low}}
---
kind: Pod
metadata: {namespace: bank, name: client, labels: {app: client, role: vip}}
spec: {nodeName: n2, containers: [{name: c, ports: [{name: http, containerPort: 9090}]}]}
status: {podIPs: [{ip: 10.1.2.3}, {ip: 'fd00:2::3'}]}
---
kind: Pod
metadata: {namespace: bank, name: teller, labels: {app: teller}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 9091}]}]}
status: {podIPs: [{ip: 10.1.1.4}, {ip: 'fd00:1::4'}]}
---
kind: Pod
metadata: {namespace: shop, name: batch, labels: {app: client}}
spec: {nodeName: n2}
status: {phase: Succeeded, podIPs: [{ip: 10.1.2.9}]}
---
kind: Pod
metadata: {namespace: shop, name: client, labels: {app: client}}
spec: {nodeName: n1}
status: {podIPs: [{ip: 10.1.1.3}, {ip: 'fd00:1::3'}]}
---
kind: Pod
metadata: {namespace: shop, name: db, labels: {app: db, tier: back}}
spec: {nodeName: n2, containers: [{name: c, ports: [{name: http, containerPort: 8081}, {name: dns, protocol: UDP, containerPort: 5353}]}]}
status: {podIPs: [{ip: 10.1.2.2}, {ip: 'fd00:2::2'}]}
---
kind: Pod
metadata: {namespace: shop, name: host, labels: {app: client}}
spec: {nodeName: n2, hostNetwork: true, containers: [{name: c, ports: [{name: http, containerPort: 8082}]}]}
status: {podIPs: [{ip: 192.168.60.12}]}
---
kind: Pod
metadata: {namespace: shop, name: web, labels: {app: web, tier: front}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 8080}, {name: dns, protocol: UDP, containerPort: 53}]}, {name: d, ports: [{name: metrics, containerPort: 9100}]}]}
status: {podIPs: [{ip: 10.1.1.2}, {ip: 'fd00:1::2'}]}
`

// objects reads documents of Pods, Namespaces and NetworkPolicies, including invalid ones.
func objects(t testing.TB, text string) *cluster.Snapshot {
	t.Helper()
	s := &cluster.Snapshot{Nodes: []cluster.Node{
		{Name: "n1", Addresses: []netip.Addr{addr("192.168.60.11")}}, {Name: "n2", Addresses: []netip.Addr{addr("192.168.60.12")}},
	}}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		var full any
		switch meta.Kind {
		case "Namespace":
			full = &corev1.Namespace{}
		case "Pod":
			full = &corev1.Pod{}
		case "NetworkPolicy":
			full = &networkingv1.NetworkPolicy{}
		default:
			t.Fatalf("no kind in\n%s", document)
		}
		if err := yaml.UnmarshalStrict([]byte(document), full); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		reduced, err := cluster.Reduce(full)
		if p, isPolicy := reduced.(*cluster.NetworkPolicy); err != nil && !(isPolicy && p.Invalid != "") {
			t.Fatalf("%v in\n%s", err, document)
		}
		switch o := reduced.(type) {
		case *cluster.Namespace:
			s.Namespaces = append(s.Namespaces, o)
		case *cluster.Pod:
			s.Pods = withPod(s.Pods, o)
		case *cluster.NetworkPolicy:
			s.NetworkPolicies = append(s.NetworkPolicies, o)
		}
	}
	sortSnapshot(s)
	return s
}

// withPod gives a list with one more pod, or with one replaced by name.
func withPod(list cluster.List[*cluster.Pod], pod *cluster.Pod) cluster.List[*cluster.Pod] {
	return list.With(map[cluster.Key]*cluster.Pod{pod.Key(): pod})
}

// sortSnapshot sorts a snapshot as a Source does.
func sortSnapshot(s *cluster.Snapshot) {
	slices.SortFunc(s.Namespaces, func(a, b *cluster.Namespace) int { return a.Key().Compare(b.Key()) })
	slices.SortFunc(s.NetworkPolicies, func(a, b *cluster.NetworkPolicy) int { return a.Key().Compare(b.Key()) })
}

// localTo gives the Local of a node with all pods that a snapshot assigns to it.
func localTo(node string, s *cluster.Snapshot) (local Local) {
	for p := range s.Pods.All() {
		if p.Node == node && !p.HostNetwork && !p.Ended {
			local.Pods = append(local.Pods, LocalPod{Pod: p.Key(), UID: uidText(p.UID), Addresses: p.Addresses})
		}
	}
	return local
}

// testCase is some policies and what they allow.
type testCase struct {
	name string
	// policies are specs, of policies named a, b and so on in namespace shop.
	policies string
	// more are complete other objects.
	more string
	// want are lines such as "web < bank/client TCP/80: a": a pod of this node, by default in namespace shop, the
	// direction, the other end, protocol and port, and the result: the policy that allows it, yes without one, or no.
	// A pod may be followed by /6 for its other address.
	want string
	// local changes the Local of the node.
	local func(*Local)
	// problems are their sentences.
	problems string
}

func (c *testCase) snapshot(t testing.TB) *cluster.Snapshot {
	t.Helper()
	text := strings.TrimSpace(fixture)
	for i, spec := range strings.Split(strings.TrimSpace(c.policies), "\n---\n") {
		if spec != "" {
			text += fmt.Sprintf("\n---\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: %c}\nspec:\n  %s", 'a'+i, strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
		}
	}
	if more := strings.TrimSpace(c.more); more != "" {
		text += "\n---\n" + more
	}
	return objects(t, text)
}

func runCases(t *testing.T, cases []testCase) {
	for i := range cases {
		c := &cases[i]
		t.Run(c.name, func(t *testing.T) {
			snapshot := c.snapshot(t)
			local := localTo("n1", snapshot)
			if c.local != nil {
				c.local(&local)
			}
			tables, problems := NewCompiler("n1").Compile(snapshot, local)
			for line := range strings.SplitSeq(strings.TrimSpace(c.want), "\n") {
				if line = strings.TrimSpace(line); line != "" {
					query, want, _ := strings.Cut(line, ": ")
					if got := ask(t, snapshot, tables, query); got != want {
						t.Errorf("%s: got %s, want %s", query, got, want)
					}
				}
			}
			var sentences []string
			for _, p := range problems {
				sentences = append(sentences, p.Text)
			}
			if got := strings.Join(sentences, "\n"); got != strings.TrimSpace(c.problems) {
				t.Errorf("problems are\n%s\nwant\n%s", got, c.problems)
			}
			if t.Failed() {
				t.Logf("%+v", tables)
			}
		})
	}
}

// ask answers a question of a test case.
func ask(t *testing.T, s *cluster.Snapshot, tables *Tables, query string) string {
	t.Helper()
	fields := strings.Fields(query)
	if len(fields) != 4 {
		t.Fatalf("%q is no question", query)
	}
	subject, other := end(t, s, fields[0]), end(t, s, fields[2])
	if subject.Is4() != other.Is4() {
		t.Fatalf("%q is of two families", query)
	}
	direction := map[string]Direction{"<": Ingress, ">": Egress}[fields[1]]
	name, number, _ := strings.Cut(fields[3], "/")
	var port uint16
	if number != "" {
		if _, err := fmt.Sscan(number, &port); err != nil {
			t.Fatal(err)
		}
	}
	protocol := map[string]uint8{"TCP": 6, "UDP": 17, "SCTP": 132, "ICMP": 1}[name]
	allowed, by := tables.Verdict(tables.Pods[subject], direction, other, protocol, port)
	switch {
	case !allowed:
		return "no"
	case by == 0:
		return "yes"
	}
	return tables.Names[by].Name
}

// end gives the address of a pod's name, or the address itself.
func end(t *testing.T, s *cluster.Snapshot, text string) netip.Addr {
	t.Helper()
	if a, err := netip.ParseAddr(text); err == nil {
		return a
	}
	name, six := strings.CutSuffix(text, "/6")
	if !strings.Contains(name, "/") {
		name = "shop/" + name
	}
	for p := range s.Pods.All() {
		if p.Key().String() == name {
			if six {
				return p.Addresses[1]
			}
			return p.Addresses[0]
		}
	}
	t.Fatalf("no pod %s", name)
	return netip.Addr{}
}

// uidText gives a text that cluster.NewUID maps to this UID.
func uidText(uid cluster.UID) string {
	if uid == (cluster.UID{}) {
		return ""
	}
	return hex.EncodeToString(uid[:])
}

// These are the lookups of bpf/lib/policy in Tables.

// Identity returns the identity of an address.
func (t *Tables) Identity(addr netip.Addr) Identity {
	if i, known := t.Identities[addr]; known {
		return i
	}
	if i, known := t.Peers.Get(addr); known {
		return i
	}
	return t.block(addr)
}

// block returns the identity of an address by Blocks alone.
func (t *Tables) block(addr netip.Addr) Identity {
	for bits := addr.BitLen(); bits >= 0; bits-- {
		prefix, err := addr.Prefix(bits)
		if err != nil {
			break // addresses with a zone are in no block
		}
		if i, known := t.Blocks[prefix]; known {
			return i
		}
	}
	return IdentityUnknown
}

// Verdict evaluates traffic between a pod with these sets and an address, as the datapath does. port is the destination's, in
// host byte order; 0 for protocols without ports, which match only rules without ports. by is the NetworkPolicy that allows it;
// 0 if none is needed.
func (t *Tables) Verdict(subject Sets, direction Direction, with netip.Addr, protocol uint8, port uint16) (allowed bool, by Policy) {
	identity := t.Identity(with)
	if identity == IdentityNode {
		return true, 0
	}
	return t.verdict(subject.in(direction), identity, protocol, port)
}

// VerdictMasqueraded is Verdict for ingress from an address of this node that another sender has: the node forwards and
// masquerades for it.
func (t *Tables) VerdictMasqueraded(subject Sets, from netip.Addr, protocol uint8, port uint16) (allowed bool, by Policy) {
	return t.verdict(subject.Ingress, t.block(from), protocol, port)
}

func (s Sets) in(direction Direction) Set {
	if direction == Egress {
		return s.Egress
	}
	return s.Ingress
}

func (t *Tables) verdict(set Set, identity Identity, protocol uint8, port uint16) (allowed bool, by Policy) {
	switch set {
	case NotIsolated:
		return true, 0
	case DenyAll:
		return false, 0
	}
	ports, known := t.Policies[Peer{set, identity}]
	if !known && identity.IsPod() {
		ports, known = t.Policies[Peer{set, IdentityPod}]
	}
	if !known {
		ports = t.Policies[Peer{set, IdentityUnknown}]
	}
	if ports == 0 {
		return false, 0
	}
	for bits := 16; bits >= 0; bits-- {
		mask := uint16(0xffff << (16 - bits))
		if by, found := t.Ports[PortPrefix{ports, uint8(8 + bits), protocol, port & mask}]; found {
			return true, by
		}
	}
	by, allowed = t.Ports[PortPrefix{Ports: ports}]
	return allowed, by
}
