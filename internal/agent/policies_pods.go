package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// policyPods are the pods here as policies have to know them, sorted by name.
func (a *Agent) policyPods() []policy.LocalPod {
	return policyPodsOf(slices.Collect(maps.Values(a.endpoints))...)
}

func policyPodsOf(endpoints ...api.Endpoint) []policy.LocalPod {
	byKey := map[cluster.Key]policy.LocalPod{}
	for _, e := range endpoints {
		pod := policyPodOf(e)
		if other, ok := byKey[pod.Pod]; ok { // with more than one interface, or made anew before the end of the old one was noticed
			pod.Addresses = slices.Concat(other.Addresses, pod.Addresses)
			if other.UID != pod.UID {
				pod.UID = "" // whichever the cluster knows
			}
		}
		byKey[pod.Pod] = pod
	}
	all := make([]policy.LocalPod, 0, len(byKey))
	for _, pod := range byKey {
		slices.SortFunc(pod.Addresses, netip.Addr.Compare)
		all = append(all, pod)
	}
	slices.SortFunc(all, func(x, y policy.LocalPod) int { return x.Pod.Compare(y.Pod) })
	return all
}

// policyPodOf names an endpoint as policies do. One without a pod is in the namespace that objects without one are in.
func policyPodOf(e api.Endpoint) policy.LocalPod {
	return policy.LocalPod{
		Pod: cluster.Key{Namespace: cmp.Or(e.Pod.Namespace, "default"), Name: podKey(e).Name}, UID: e.Pod.UID,
		Nameless: e.Pod.Name == "", Addresses: slices.Clone(e.Addresses),
	}
}

// recognised gives those pods their names of which an earlier agent has left no more than addresses: under another name no policy
// would select them. The cluster's Pods have the addresses.
func recognised(s *cluster.Snapshot, pods []policy.LocalPod) []policy.LocalPod {
	if !slices.ContainsFunc(pods, func(p policy.LocalPod) bool { return p.Nameless }) {
		return pods
	}
	owners := map[netip.Addr]cluster.Key{}
	for _, object := range s.Pods {
		if object.HostNetwork || object.Ended {
			continue
		}
		for _, a := range object.Addresses {
			owners[a] = object.Key()
		}
	}
	pods = slices.Clone(pods)
	for i, pod := range pods {
		for _, a := range pod.Addresses {
			if owner, ok := owners[a]; ok && pod.Nameless {
				pods[i].Pod, pods[i].Nameless = owner, false
				break
			}
		}
	}
	slices.SortFunc(pods, func(x, y policy.LocalPod) int { return x.Pod.Compare(y.Pod) })
	return pods
}

// objectOf gives the Pod of a pod here, or nil if the cluster has not told of it.
func objectOf(s *cluster.Snapshot, pod policy.LocalPod) *cluster.Pod {
	object := podOf(s, pod.Pod)
	if object != nil && object.UID != "" && pod.UID != "" && object.UID != pod.UID {
		return nil // of one of that name that was before, or comes after
	}
	return object
}

// withLocal gives a snapshot with the pods of a node as its agent has them, which knows their addresses first; those that the cluster has
// not told of come without labels.
func withLocal(s *cluster.Snapshot, node string, pods []policy.LocalPod) *cluster.Snapshot {
	local := map[cluster.Key]*cluster.Pod{}
	taken := map[netip.Addr]bool{}
	for _, pod := range pods {
		made := cluster.Pod{Namespace: pod.Pod.Namespace, Name: pod.Pod.Name, UID: pod.UID}
		if object := objectOf(s, pod); object != nil {
			made = *object
		}
		made.Node, made.HostNetwork, made.Ended, made.Addresses = node, false, false, pod.Addresses
		local[pod.Pod] = &made
		for _, a := range pod.Addresses {
			taken[a] = true
		}
	}
	with := *s
	with.Pods = make([]*cluster.Pod, 0, len(s.Pods)+len(local))
	for _, p := range s.Pods {
		if _, here := local[p.Key()]; here {
			continue
		}
		if isTaken := func(a netip.Addr) bool { return taken[a] }; slices.ContainsFunc(p.Addresses, isTaken) {
			without := *p // a pod that was before
			without.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), isTaken)
			p = &without
		}
		with.Pods = append(with.Pods, p)
	}
	for _, p := range local {
		with.Pods = append(with.Pods, p)
	}
	slices.SortFunc(with.Pods, func(x, y *cluster.Pod) int { return x.Key().Compare(y.Key()) })
	return &with
}
