package samenode

import (
	"net/netip"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
)

// optedIn are the endpoints whose pod has the annotation. A pod of the runtime and a Pod of the cluster with different
// UIDs are not the same: the later one may not have opted in. Messages between sockets pass no bandwidth limit.
func optedIn(endpoints []agentapi.Endpoint, snapshot *cluster.Snapshot) (all []agentapi.Endpoint) {
	for _, e := range endpoints {
		p, found := snapshot.Pods.Find(cluster.Key{Namespace: e.Pod.Namespace, Name: e.Pod.Name})
		if !found || p.SameNode != cluster.SameNodeSockets || p.HostNetwork || p.Ended || e.Netns == "" || e.Bandwidth != (agentapi.Bandwidth{}) {
			continue
		}
		if uid := cluster.NewUID(e.Pod.UID); uid != (cluster.UID{}) && p.UID != (cluster.UID{}) && uid != p.UID {
			continue
		}
		all = append(all, e)
	}
	return all
}

// divide gives each namespace the same part of the sockets, and each of its pods the same part of that. So no
// namespace can take the sockets of another one.
func divide(pods map[string][]agentapi.Endpoint, cookies map[string]uint64, sockets int) map[netip.Addr]samenode.Pod {
	all := map[netip.Addr]samenode.Pod{}
	for _, endpoints := range pods {
		share := max(sockets/len(pods)/len(endpoints), 1)
		for _, e := range endpoints {
			for _, addr := range e.Addresses {
				all[addr] = samenode.Pod{Netns: cookies[e.HostDevice], Share: uint32(share)}
			}
		}
	}
	return all
}
