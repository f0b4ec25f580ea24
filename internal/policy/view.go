package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Object gives the Pod of a pod here, or nil if the cluster has not told of it: one with another UID is that of an earlier pod
// of the name, or of a later one.
func (p LocalPod) Object(s *cluster.Snapshot) *cluster.Pod {
	object, _ := s.Pods.Find(p.Pod)
	return p.asObject(object)
}

// asObject gives the Pod of that name if it is this pod.
func (p LocalPod) asObject(object *cluster.Pod) *cluster.Pod {
	if object != nil && object.UID != (cluster.UID{}) && p.UID != "" && object.UID != cluster.NewUID(p.UID) {
		return nil
	}
	return object
}

// Named gives the same with names for those pods of which no more than the addresses are known: under a name that is made up no policy
// would select them. The cluster's Pods have the addresses.
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

// View gives a snapshot with the pods of a node as the node has them, which knows their addresses first; those that the cluster has
// not told of come without labels. Of several pods of one name, that of the cluster's Pod comes first, even if it is of another node;
// without a node's name, only those that are here come. The Node has all addresses of the node, as Compile takes them.
func (l Local) View(s *cluster.Snapshot, node string) *cluster.Snapshot {
	here := map[cluster.Key]bool{}
	taken := map[netip.Addr]bool{}
	var told, untold []*cluster.Pod
	for _, pod := range l.Pods {
		made := cluster.Pod{Namespace: pod.Pod.Namespace, Name: pod.Pod.Name, UID: cluster.NewUID(pod.UID)}
		object := pod.Object(s)
		if object != nil {
			made = *object
		}
		made.Node, made.HostNetwork, made.Ended, made.Addresses = node, false, false, pod.Addresses
		if object != nil {
			told = append(told, &made)
		} else {
			untold = append(untold, &made)
		}
		here[pod.Pod] = true
		for _, a := range pod.Addresses {
			taken[a] = true
		}
	}
	with := *s
	for p := range s.Pods.All() {
		if here[p.Key()] && (node == "" || mayBeOf(node, p)) {
			continue
		}
		if isTaken := func(a netip.Addr) bool { return taken[a] }; slices.ContainsFunc(p.Addresses, isTaken) {
			without := *p // a pod that was before
			without.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), isTaken)
			p = &without
		}
		told = append(told, p)
	}
	told = append(told, untold...)
	slices.SortStableFunc(told, func(x, y *cluster.Pod) int { return x.Key().Compare(y.Key()) })
	with.Pods = cluster.ListOf(told...)
	with.Nodes = l.nodes(s.Nodes, node)
	return &with
}

// mayBeOf tells whether a pod is of a node, as far as the cluster has told where it is.
func mayBeOf(node string, p *cluster.Pod) bool { return p.Node == "" || p.Node == node }

// nodes gives the nodes with one of this name that has the addresses known here too.
func (l Local) nodes(all []cluster.Node, name string) []cluster.Node {
	if name == "" || len(l.Addresses) == 0 {
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
