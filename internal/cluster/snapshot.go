// Package cluster turns Kubernetes objects into immutable snapshots of what this node has to know. Where
// the objects come from (a directory of manifests, an API server) stays behind Source.
package cluster

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Snapshot is the state of the cluster at one moment. It is never changed after it was delivered, nor is anything
// it refers to. A list that is as it was in the snapshot before is the same (see Same and List); an object
// that is as it was is the same pointer.
type Snapshot struct {
	// Nodes are sorted by name.
	Nodes []Node
	// Namespaces are sorted by name; the others by namespace and name.
	Namespaces      []*Namespace
	Pods            List[*Pod]
	Services        []*Service
	EndpointSlices  List[*EndpointSlice]
	NetworkPolicies []*NetworkPolicy
	// Incomplete says that Nodes which were there when the source began, or may have been, have never been
	// understood: what an earlier reader knew of nodes is not to be taken for deleted.
	Incomplete bool
	// Unknown are the kinds of which the source has never had the whole list: that such a list is empty, or that
	// an object is not in it, says nothing.
	Unknown Kinds
	// Partial are the kinds of which objects that were there when the source began, or may have been, have never been understood: what an
	// earlier reader knew of such objects is not to be taken for deleted. The others can be made use of.
	Partial Kinds
	// Since is when the source heard of the oldest change that this snapshot is the first to have.
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

// Counts tells how many objects of each kind the snapshot has.
func (s *Snapshot) Counts() map[Kind]int {
	return map[Kind]int{
		KindNode: len(s.Nodes), KindNamespace: len(s.Namespaces), KindPod: s.Pods.Len(), KindService: len(s.Services),
		KindEndpointSlice: s.EndpointSlices.Len(), KindNetworkPolicy: len(s.NetworkPolicies),
	}
}

// Same tells, without looking at what is in them, whether a list of one snapshot is that of another. Lists with the
// same content are not always the same.
func Same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Source delivers snapshots. Implementations: NewManifests (a directory), apiserver.Source.
type Source interface {
	// Run delivers a first snapshot as soon as one can be had and then one for every change, or for several that
	// come together, from a single goroutine, until ctx ends; it returns nil then. Input that cannot be
	// understood or had does not end Run: the last good state stays in force and Problems says what is wrong.
	Run(ctx context.Context, deliver func(*Snapshot)) error
	// Problems are the complaints in force now, one sentence each, which names the file and line or the object;
	// none when all is well.
	Problems() []string
}

// ObjectProblem is something that is wrong with an object of the cluster, whichever node looks at it.
type ObjectProblem struct {
	Kind Kind
	Key  Key
	// UID is the object's, by which Events about it are found; of a Node its name, as in the kubelet's Events. Empty where it is not known.
	UID string
	// Text is a sentence that names the object.
	Text string
}

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
)

// AllKinds are the kinds in the order in which they are listed to people.
var AllKinds = Kinds{KindNode, KindNamespace, KindPod, KindService, KindEndpointSlice, KindNetworkPolicy}

// Kinds is a set of kinds, each once.
type Kinds []Kind

// Has tells whether a kind is in the set.
func (k Kinds) Has(kind Kind) bool { return slices.Contains(k, kind) }

// Key names an object among those of its kind. Namespace is empty for Nodes and Namespaces.
type Key struct{ Namespace, Name string }

// String gives "namespace/name", as kubectl prints it.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys as snapshots do.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}
