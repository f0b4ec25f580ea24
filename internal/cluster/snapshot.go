// Package cluster turns Kubernetes objects into immutable snapshots of what this node needs. Source hides where they
// come from (a directory of manifests, an API server).
package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
)

// Snapshot is the state of the cluster at one moment. It is immutable, as is everything that it references. A list
// that has not changed since the last snapshot is the same (see Same and List); an unchanged object is the same
// pointer.
type Snapshot struct {
	// Nodes are sorted by name.
	Nodes []Node
	// Namespaces are sorted by name; the others by namespace and name.
	Namespaces      []*Namespace
	Pods            List[*Pod]
	Services        []*Service
	EndpointSlices  List[*EndpointSlice]
	NetworkPolicies []*NetworkPolicy
	// IPPools are sorted by name.
	IPPools []*IPPool
	// Incomplete says that Nodes which existed at the start, or may have, have never been valid: nodes recovered from
	// the datapath must not be taken for deleted.
	Incomplete bool
	// Unknown are the kinds that have not been fully listed yet: an empty list, or a missing object, says nothing.
	Unknown Kinds
	// Partial are the kinds of which objects existed at the start, or may have, that have never been valid: recovered
	// state of such objects must not be taken for deleted. The valid objects are usable.
	Partial Kinds
	// Since is when the source received the oldest change that is new in this snapshot.
	Since time.Time
}

// Node gives the node of that name.
func (s *Snapshot) Node(name string) (Node, bool) {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// Counts gives the number of objects of each kind.
func (s *Snapshot) Counts() map[Kind]int {
	return map[Kind]int{
		KindNode: len(s.Nodes), KindNamespace: len(s.Namespaces), KindPod: s.Pods.Len(), KindService: len(s.Services),
		KindEndpointSlice: s.EndpointSlices.Len(), KindNetworkPolicy: len(s.NetworkPolicies),
		KindIPPool: len(s.IPPools),
	}
}

// Same reports whether two lists are the same one, without comparing their content. Lists with equal content may
// differ.
func Same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Source delivers snapshots. Implementations: NewManifests (a directory), apiserver.Source.
type Source interface {
	// Run delivers a first snapshot as soon as possible, then one for every change, or for several that come
	// together, from a single goroutine. It returns nil when ctx ends. Invalid or unavailable input does not end Run:
	// the last valid state remains active and Problems says what is wrong.
	Run(ctx context.Context, deliver func(*Snapshot)) error
	// Problems are the current problems, one sentence each, which names the file and line or the object; none when
	// all is well.
	Problems() []string
}

// LogProblems logs problems of a Source that appeared or ended.
func LogProblems(log *slog.Logger, before, now []string) {
	if slices.Equal(before, now) {
		return // the common case
	}
	for _, p := range now {
		if !slices.Contains(before, p) {
			log.Warn("cluster state problem", "problem", p)
		}
	}
	for _, p := range before {
		if !slices.Contains(now, p) {
			log.Info("cluster state problem resolved", "problem", p)
		}
	}
}

// ObjectProblem is a problem with an object of the cluster; every node sees the same.
type ObjectProblem struct {
	Kind Kind
	Key  Key
	// UID is the object's, for Events; of a Node its name, as in the kubelet's Events. Empty if it is not known.
	UID string
	// Text is a sentence that names the object.
	Text string
}

// String returns Text.
func (p ObjectProblem) String() string { return p.Text }

// Kind is a kind of Kubernetes object that snapshots have.
type Kind string

// The kinds.
const (
	KindNode          Kind = "Node"
	KindNamespace     Kind = "Namespace"
	KindPod           Kind = "Pod"
	KindService       Kind = "Service"
	KindEndpointSlice Kind = "EndpointSlice"
	KindNetworkPolicy Kind = "NetworkPolicy"
	KindIPPool        Kind = "IPPool"
)

// AllKinds are the kinds in the order of listings.
var AllKinds = Kinds{KindNode, KindNamespace, KindPod, KindService, KindEndpointSlice, KindNetworkPolicy, KindIPPool}

// Kinds is a set of kinds, each once.
type Kinds []Kind

// Has reports whether a kind is in the set.
func (k Kinds) Has(kind Kind) bool { return slices.Contains(k, kind) }

// Key identifies an object among those of its kind. Namespace is empty for Nodes, Namespaces and IPPools.
type Key struct{ Namespace, Name string }

// String gives "namespace/name", as kubectl prints it.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys as in snapshots.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}
