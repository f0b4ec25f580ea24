package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// LocalPods are the pods of endpoints, sorted by name; all interfaces of a pod are one pod. A pod that is recreated
// under the same name before the end of the old one was noticed is another pod, with its own labels. Without UIDs
// from the runtime they are one pod, with the labels of the cluster's Pod: a later sandbox of the same pod looks like
// one of a later pod, and policies select both addresses.
func LocalPods(endpoints ...agentapi.Endpoint) []policy.LocalPod {
	type name struct {
		pod cluster.Key
		uid string
	}
	byName := map[name]policy.LocalPod{}
	for _, e := range endpoints {
		pod := LocalPod(e)
		of := name{pod.Pod, pod.UID}
		pod.Addresses = slices.Concat(byName[of].Addresses, pod.Addresses)
		byName[of] = pod
	}
	all := make([]policy.LocalPod, 0, len(byName))
	for _, pod := range byName {
		slices.SortFunc(pod.Addresses, netip.Addr.Compare)
		all = append(all, pod)
	}
	slices.SortFunc(all, func(x, y policy.LocalPod) int { return cmp.Or(x.Pod.Compare(y.Pod), cmp.Compare(x.UID, y.UID)) })
	return all
}

// LocalPod is the pod of an endpoint. One without a pod is in namespace default.
func LocalPod(e agentapi.Endpoint) policy.LocalPod {
	return policy.LocalPod{
		Pod: cluster.Key{Namespace: cmp.Or(e.Pod.Namespace, "default"), Name: lb.PodKey(e).Name}, UID: e.Pod.UID,
		Nameless: e.Pod.Name == "", Addresses: slices.Clone(e.Addresses),
	}
}
