package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// randomWorld makes snapshots with few names, labels and addresses, so that objects often interact. Unchanged objects
// stay the same.
type randomCluster struct {
	*rand.Rand
	namespaces map[string]*cluster.Namespace
	pods       map[cluster.Key]*cluster.Pod
	policies   map[cluster.Key]*cluster.NetworkPolicy
	last       cluster.Snapshot
}

func newRandomCluster(seed uint64) *randomCluster {
	w := &randomCluster{
		Rand: rand.New(rand.NewPCG(seed, 5)), namespaces: map[string]*cluster.Namespace{},
		pods: map[cluster.Key]*cluster.Pod{}, policies: map[cluster.Key]*cluster.NetworkPolicy{},
	}
	w.last.Nodes = []cluster.Node{{Name: "n1", Addresses: addrs("192.168.60.11")}}
	for range 40 {
		w.change()
	}
	return w
}

func (w *randomCluster) chance(of int) bool      { return w.IntN(of) == 0 }
func (w *randomCluster) of(all ...string) string { return all[w.IntN(len(all))] }

func (w *randomCluster) labels() cluster.Labels {
	labels := map[string]string{}
	for _, key := range []string{"a", "b"} {
		if !w.chance(3) {
			labels[key] = w.of("0", "1", "2")
		}
	}
	return cluster.NewLabels(labels)
}

func (w *randomCluster) selector() (s cluster.Selector) {
	for w.chance(2) {
		r := cluster.Requirement{Key: w.of("a", "b"), Operator: metav1.LabelSelectorOperator(w.of("In", "In", "NotIn", "Exists", "DoesNotExist"))}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			for ok := true; ok; ok = w.chance(2) {
				r.Values = append(r.Values, w.of("0", "1", "2"))
			}
		}
		s.Requirements = append(s.Requirements, r)
	}
	return s
}

// address gives one of few, some of which are pods'.
func (w *randomCluster) address() netip.Addr {
	n := byte(w.IntN(24))
	if w.chance(2) {
		return netip.AddrFrom4([4]byte{10, 0, n >> 3, n & 7})
	}
	return netip.AddrFrom16([16]byte{0xfd, 14: n >> 3, 15: n & 7})
}

func (w *randomCluster) peer() (p cluster.PolicyPeer) {
	if w.chance(2) {
		a := w.address()
		p.Block, _ = a.Prefix(a.BitLen() - []int{a.BitLen(), 24, 11, 10, 4, 3, 2, 1, 0}[w.IntN(9)]%(a.BitLen()+1))
		for w.chance(2) {
			bits := p.Block.Bits() + 1 + w.IntN(4)
			if w.chance(2) {
				bits = a.BitLen() - w.IntN(5)
			}
			inside := w.address()
			if bits <= p.Block.Bits() || bits > a.BitLen() || !p.Block.Contains(inside) {
				continue
			}
			except, _ := inside.Prefix(bits)
			p.Except = append(p.Except, except)
		}
		return p
	}
	if n := w.selector(); w.chance(2) {
		p.Namespaces = &n
	}
	if s := w.selector(); p.Namespaces == nil || w.chance(2) {
		p.Pods = &s
	}
	return p
}

func (w *randomCluster) port() (p cluster.PolicyPort) {
	p.Protocol = []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}[w.IntN(3)]
	switch w.IntN(4) {
	case 0:
		p.Name = w.of("x", "y")
	case 1, 2:
		p.First = uint16(1 + w.IntN(12))
		p.Last = p.First
		if w.chance(2) {
			p.Last += uint16(w.IntN(12))
		}
	}
	return p
}

func (w *randomCluster) rules() (rules []cluster.PolicyRule) {
	for range w.IntN(4) {
		var r cluster.PolicyRule
		for range w.IntN(4) {
			r.Peers = append(r.Peers, w.peer())
		}
		for range w.IntN(3) {
			r.Ports = append(r.Ports, w.port())
		}
		rules = append(rules, r)
	}
	return rules
}

// change changes one thing.
func (w *randomCluster) change() {
	switch key := (cluster.Key{Namespace: w.of("p", "q", "r"), Name: w.of("0", "1", "2", "3")}); w.IntN(13) {
	case 0:
		w.namespaces[key.Namespace] = &cluster.Namespace{Name: key.Namespace, Labels: w.labels()}
	case 1, 2, 3, 4:
		w.setPod(key)
	case 5:
		delete(w.pods, key)
	case 6, 7, 8:
		p := &cluster.NetworkPolicy{Namespace: key.Namespace, Name: key.Name, Pods: w.selector(), IsolatesIngress: !w.chance(3)}
		p.IsolatesEgress = !p.IsolatesIngress || w.chance(2)
		if w.chance(12) {
			p.Invalid = "nonsense"
		}
		if p.IsolatesIngress && p.Invalid == "" {
			p.Ingress = w.rules()
		}
		if p.IsolatesEgress && p.Invalid == "" {
			p.Egress = w.rules()
		}
		w.policies[key] = p
	case 9:
		delete(w.policies, key)
	case 10, 11, 12:
		w.changeBlocks(key)
	}
}

// changeBlocks changes only ipBlocks of a policy.
func (w *randomCluster) changeBlocks(key cluster.Key) {
	p := w.policies[key]
	if p == nil {
		return
	}
	changed := *p
	for _, rules := range []*[]cluster.PolicyRule{&changed.Ingress, &changed.Egress} {
		*rules = slices.Clone(*rules)
		for i := range *rules {
			r := &(*rules)[i]
			r.Peers = slices.Clone(r.Peers)
			for j := range r.Peers {
				for r.Peers[j].Block.IsValid() && w.chance(2) {
					if other := w.peer(); other.Block.IsValid() && other.Block.Addr().Is4() == r.Peers[j].Block.Addr().Is4() {
						r.Peers[j] = other
					}
				}
			}
		}
	}
	w.policies[key] = &changed
}

// setPod changes some of a pod, which keeps its addresses. No two pods share one.
func (w *randomCluster) setPod(key cluster.Key) {
	p := &cluster.Pod{Namespace: key.Namespace, Name: key.Name, Node: w.of("n1", "n1", "n2"), Labels: w.labels(), HostNetwork: w.chance(12), Ended: w.chance(12)}
	n := (key.Namespace[0]-'p')<<2 | (key.Name[0] - '0')
	if !w.chance(8) {
		p.Addresses = append(p.Addresses, netip.AddrFrom4([4]byte{10, 0, n >> 3, n & 7}))
	}
	if w.chance(2) {
		p.Addresses = append(p.Addresses, netip.AddrFrom16([16]byte{0xfd, 14: n >> 3, 15: n & 7}))
	}
	for _, name := range []string{"x", "y"} {
		if w.chance(2) {
			p.Ports = append(p.Ports, cluster.ContainerPort{Name: name, Protocol: []cluster.Protocol{cluster.TCP, cluster.UDP}[w.IntN(2)], Number: uint16(1 + w.IntN(16))})
		}
	}
	w.pods[key] = p
}

func (w *randomCluster) snapshot() *cluster.Snapshot {
	w.last.Namespaces = sortedObjects(w.namespaces, w.last.Namespaces)
	if now := sortedObjects(w.pods, w.last.Pods.Slice()); !slices.Equal(now, w.last.Pods.Slice()) {
		w.last.Pods = cluster.ListOf(now...)
	}
	w.last.NetworkPolicies = sortedObjects(w.policies, w.last.NetworkPolicies)
	s := w.last
	return &s
}

func sortedObjects[K comparable, T interface {
	comparable
	Key() cluster.Key
}](all map[K]T, last []T) []T {
	var list []T
	for _, o := range all {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b T) int { return a.Key().Compare(b.Key()) })
	if slices.Equal(list, last) {
		return last
	}
	return list
}

// question is whether a pod of this node may have traffic with an address.
type query struct {
	pod       cluster.Key
	subject   netip.Addr
	direction Direction
	peer      netip.Addr
	protocol  uint8
	port      uint16
}

func (q query) String() string {
	return fmt.Sprintf("%s of pod %s (%s) and %s, protocol %d, port %d", q.direction, q.pod, q.subject, q.peer, q.protocol, q.port)
}

// questions gives some about pods of this node.
func (w *randomCluster) queries(local Local, n int) (all []query) {
	for range n {
		if len(local.Pods) == 0 {
			return nil
		}
		p := local.Pods[w.IntN(len(local.Pods))]
		if len(p.Addresses) == 0 {
			continue
		}
		q := query{
			pod: p.Pod, subject: p.Addresses[w.IntN(len(p.Addresses))], direction: Direction(w.IntN(2)), peer: w.address(),
			protocol: []uint8{1, 6, 17, 132}[w.IntN(4)], port: uint16(w.IntN(20)),
		}
		if q.subject.Is4() != q.peer.Is4() || q.subject == q.peer {
			continue
		}
		if q.protocol == 1 {
			q.port = 0
		}
		all = append(all, q)
	}
	return all
}
