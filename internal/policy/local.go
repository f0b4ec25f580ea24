package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Local is what a node knows about itself in addition to the snapshot.
type Local struct {
	// Addresses are the node's own. Those of the snapshot's Node may be missing.
	Addresses []netip.Addr
	// Pods are those with an interface on this node, each once: an old and a new pod of one name have different UIDs. Their
	// addresses take precedence over the snapshot's.
	Pods []LocalPod
	// Unlabelled says that a pod without a Pod in the snapshot never gets one and has no labels, as with manifests. Otherwise
	// its Pod is still to come; until then the pod is isolated where policies of its namespace may select it.
	Unlabelled bool
}

// LocalPod is a pod of this node.
type LocalPod struct {
	Pod cluster.Key
	// UID is the runtime's. A Pod with another UID is an earlier or later pod of the same name. Empty is unknown and matches
	// any Pod of that name.
	UID string
	// Nameless says that Pod is a placeholder: only the pod's addresses are known.
	Nameless bool
	// Addresses are those of all interfaces and sandboxes of the pod: policies apply to each of them.
	Addresses []netip.Addr
}

// Problem is a reason why a NetworkPolicy is not enforced as written, or why pods cannot be identified.
type Problem struct {
	// Policy is the NetworkPolicy, with its UID; empty for a problem without one.
	Policy cluster.Key
	UID    string
	// Pods are the affected pods of this node, sorted.
	Pods []cluster.Key
	// Text is a sentence that names its subject.
	Text string
}

// Object returns the Pod of a local pod, or nil if the snapshot lacks it: one with another UID is an earlier or later pod of
// the same name.
func (p LocalPod) Object(s *cluster.Snapshot) *cluster.Pod {
	object, _ := s.Pods.Find(p.Pod)
	return p.asObject(object)
}

// asObject returns the Pod of that name if it is this pod.
func (p LocalPod) asObject(object *cluster.Pod) *cluster.Pod {
	if object != nil && object.UID != (cluster.UID{}) && p.UID != "" && object.UID != cluster.NewUID(p.UID) {
		return nil
	}
	return object
}

// Named returns l with names for nameless pods, which policies could not select otherwise. It finds them by the addresses of
// the cluster's Pods.
func (l Local) Named(s *cluster.Snapshot) Local {
	if !slices.ContainsFunc(l.Pods, func(p LocalPod) bool { return p.Nameless }) {
		return l
	}
	owners := map[netip.Addr]cluster.Key{}
	for object := range s.Pods.All() {
		if object.HostNetwork || object.Ended {
			continue
		}
		for _, a := range object.Addresses {
			owners[a] = object.Key()
		}
	}
	l.Pods = slices.Clone(l.Pods)
	for i, pod := range l.Pods {
		for _, a := range pod.Addresses {
			if owner, ok := owners[a]; ok && pod.Nameless {
				l.Pods[i].Pod, l.Pods[i].Nameless = owner, false
				break
			}
		}
	}
	slices.SortStableFunc(l.Pods, func(x, y LocalPod) int { return x.Pod.Compare(y.Pod) })
	return l
}

// View returns a snapshot with the pods of a node as the node knows them, which has their addresses first; those without a Pod
// have no labels. Of several pods of one name that of the cluster's Pod comes first, even if it is on another node. The Node
// gets all addresses of the node, as in Compile.
func (l Local) View(s *cluster.Snapshot, node string) *cluster.Snapshot {
	here := map[cluster.Key]bool{}
	taken := map[netip.Addr]bool{}
	var listed, unlisted []*cluster.Pod
	for _, pod := range l.Pods {
		made := cluster.Pod{Namespace: pod.Pod.Namespace, Name: pod.Pod.Name, UID: cluster.NewUID(pod.UID)}
		object := pod.Object(s)
		if object != nil {
			made = *object
		}
		made.Node, made.HostNetwork, made.Ended, made.Addresses = node, false, false, pod.Addresses
		if object != nil {
			listed = append(listed, &made)
		} else {
			unlisted = append(unlisted, &made)
		}
		here[pod.Pod] = true
		for _, a := range pod.Addresses {
			taken[a] = true
		}
	}
	with := *s
	for p := range s.Pods.All() {
		if here[p.Key()] && mayRunOn(node, p) {
			continue
		}
		if isTaken := func(a netip.Addr) bool { return taken[a] }; slices.ContainsFunc(p.Addresses, isTaken) {
			without := *p // an earlier pod with the address
			without.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), isTaken)
			p = &without
		}
		listed = append(listed, p)
	}
	listed = append(listed, unlisted...)
	slices.SortStableFunc(listed, func(x, y *cluster.Pod) int { return x.Key().Compare(y.Key()) })
	with.Pods = cluster.ListOf(listed...)
	with.Nodes = l.nodes(s.Nodes, node)
	return &with
}

// mayRunOn reports whether a pod may be on a node: its node is this one or not yet known.
func mayRunOn(node string, p *cluster.Pod) bool { return p.Node == "" || p.Node == node }

// nodes returns the nodes, with the local addresses added to the one of this name.
func (l Local) nodes(all []cluster.Node, name string) []cluster.Node {
	if len(l.Addresses) == 0 {
		return all
	}
	all = slices.Clone(all)
	at, found := slices.BinarySearchFunc(all, name, func(n cluster.Node, name string) int { return strings.Compare(n.Name, name) })
	if !found {
		all = slices.Insert(all, at, cluster.Node{Name: name})
	}
	own := &all[at]
	own.Addresses = slices.Clone(own.Addresses)
	for _, a := range l.Addresses {
		if a = a.Unmap(); !slices.Contains(own.Addresses, a) {
			own.Addresses = append(own.Addresses, a)
		}
	}
	return all
}
