// Package oracle makes random clusters and traffic to compare evaluators of NetworkPolicies, and finds the smallest cluster in
// which they disagree. It is for tests.
package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// The nodes of every Cluster. Evaluators run on Here.
const (
	Here  = "here"
	There = "there"
)

// Cluster is a cluster of two nodes with a few pods, namespaces and policies, whose labels, ports and ipBlocks match often.
type Cluster struct{ *cluster.Snapshot }

// Own returns the pods of this node that have an interface of their own.
func (w Cluster) Own() []*cluster.Pod {
	var own []*cluster.Pod
	for p := range w.Pods.All() {
		if p.Node == Here && !p.HostNetwork && !p.Ended {
			own = append(own, p)
		}
	}
	return own
}

// Local returns what this node knows about itself.
func (w Cluster) Local() policy.Local {
	var local policy.Local
	for _, p := range w.Own() {
		local.Pods = append(local.Pods, policy.LocalPod{Pod: p.Key(), Addresses: p.Addresses})
	}
	return local
}

// nodes are the nodes of every Cluster.
var nodes = []cluster.Node{
	{Name: Here, Addresses: all(netip.MustParseAddr, "172.30.0.1", "fd00:172:30::1")},
	{Name: There, Addresses: all(netip.MustParseAddr, "172.30.0.2", "fd00:172:30::2")},
}

// slot is a possible pod: its node and the last byte of its addresses.
type slot struct {
	node   string
	number byte
	always bool
}

// The two pods on this node always exist; the packet tests of the datapath have devices with their addresses.
var slots = []slot{{Here, 2, true}, {Here, 3, true}, {There, 2, false}, {There, 3, false}, {There, 4, false}, {There, 5, false}}

func (s slot) addresses() []netip.Addr {
	node := byte(1)
	if s.node == There {
		node = 2
	}
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, 1, node, s.number}), netip.AddrFrom16([16]byte{0xfd, 0, 0, 1, 0, node, 15: s.number}),
	}
}

var namespaces = []string{"blue", "green", "red"}

// Random makes a Cluster.
func Random(r *rand.Rand) Cluster {
	w := Cluster{&cluster.Snapshot{Nodes: nodes}}
	for _, name := range namespaces {
		if chance(r, 80) { // the others have pods nevertheless
			w.Namespaces = append(w.Namespaces, randomNamespace(r, name))
		}
	}
	var pods []*cluster.Pod
	for _, s := range slots {
		if s.always || chance(r, 70) {
			pods = append(pods, randomPod(r, s))
		}
	}
	if chance(r, 30) {
		pods = append(pods, onNode(randomPod(r, slot{node: pick(r, Here, There), number: 100})))
	}
	if chance(r, 30) {
		ended := randomPod(r, slot{There, byte(2 + r.IntN(6)), false}) // another pod may have its addresses
		ended.Name, ended.Ended = "ended", true
		pods = append(pods, ended)
	}
	w.Pods = podList(pods)
	for i := range 1 + r.IntN(6) {
		w.NetworkPolicies = append(w.NetworkPolicies, randomPolicy(r, i))
	}
	slices.SortFunc(w.NetworkPolicies, func(a, b *cluster.NetworkPolicy) int { return a.Key().Compare(b.Key()) })
	return w
}

// podList sorts pods as snapshots do.
func podList(pods []*cluster.Pod) cluster.List[*cluster.Pod] {
	slices.SortFunc(pods, func(a, b *cluster.Pod) int { return a.Key().Compare(b.Key()) })
	return cluster.ListOf(pods...)
}

func randomNamespace(r *rand.Rand, name string) *cluster.Namespace {
	labels := randomLabels(r)
	labels["kubernetes.io/metadata.name"] = name
	return &cluster.Namespace{Name: name, Labels: cluster.NewLabels(labels)}
}

func randomPod(r *rand.Rand, s slot) *cluster.Pod {
	p := &cluster.Pod{
		Namespace: pick(r, namespaces...), Name: fmt.Sprintf("%s-%d", s.node, s.number), Node: s.node,
		Addresses: s.addresses(), Labels: cluster.NewLabels(randomLabels(r)),
	}
	if !s.always && chance(r, 10) {
		p.Addresses = p.Addresses[r.IntN(2):][:1] // of one family
	}
	for _, name := range portNames {
		if chance(r, 40) {
			p.Ports = append(p.Ports, cluster.ContainerPort{Name: name, Protocol: randomProtocol(r), Number: pick(r, usualPorts...)})
		}
	}
	return p
}

// onNode makes a pod use hostNetwork.
func onNode(p *cluster.Pod) *cluster.Pod {
	p.HostNetwork = true
	for _, n := range nodes {
		if n.Name == p.Node {
			p.Addresses = n.Addresses
		}
	}
	return p
}

func randomLabels(r *rand.Rand) map[string]string {
	labels := map[string]string{}
	for _, key := range labelKeys {
		if chance(r, 60) {
			labels[key] = pick(r, labelValues...)
		}
	}
	return labels
}

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
