package samenode

import (
	"fmt"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Pod is an address of a local pod that opted in.
type Pod struct {
	// Netns is the cookie of the pod's network namespace.
	Netns uint64
	// Share is how many sockets of the pod may meet others at a time.
	Share uint32
}

// Sync makes the table hold exactly these pods. Sockets of others go back to packets with their next message.
func (s *SameNode) Sync(want map[netip.Addr]Pod) (changed int, err error) {
	have := map[bpf.SameNodeAddress]bpf.SameNodePod{}
	err = table.Read(s.Pods, func(k *bpf.SameNodeAddress, v *bpf.SameNodePod) { have[*k] = *v })
	if err != nil {
		return 0, fmt.Errorf("read map %s: %w", bpf.SameNodeMapSnPods, err)
	}
	wanted := map[bpf.SameNodeAddress]bpf.SameNodePod{}
	for a, p := range want {
		wanted[bpf.SameNodeAddress(bpf.AddressOf(a))] = bpf.SameNodePod{Netns: p.Netns, Share: p.Share}
	}
	set, del := table.Diff(have, wanted)
	if len(set)+len(del) == 0 {
		return 0, nil
	}
	if _, err := table.Delete(s.Pods, del); err != nil {
		return 0, fmt.Errorf("delete from map %s: %w", bpf.SameNodeMapSnPods, err)
	}
	for k, v := range set {
		if err := s.Pods.Put(k, v); err != nil {
			return 0, table.FullOr(bpf.SameNodeMapSnPods, s.Pods, err, nil)
		}
	}
	return len(set) + len(del), s.datapath.Generation.Advance()
}
