package device

import (
	"fmt"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/qdisc"
)

// LimitPodEnd delays what a pod sends to a rate in bytes/s, with link-layer headers; 0 is no limit. A pod with NET_ADMIN can undo it: it
// is for pods that would lose packets at the host end else. It finds the pod's end as SetMTU does.
func LimitPodEnd(hostIndex int, netns string, rate uint64) error {
	host, err := netlink.LinkByIndex(hostIndex)
	if err != nil {
		return fmt.Errorf("find device %d: %w", hostIndex, err)
	}
	pod, err := readPeer(host)
	if err != nil {
		return err
	}
	inside, err := openNamespace(host.Attrs().NetNsID, netns)
	if err != nil {
		return fmt.Errorf("limit the pod's end of %s: %w: %w", host.Attrs().Name, ErrPodUnreachable, err)
	}
	defer inside.Close()
	if err := inside.Do(func(ns.NetNS) error { return qdisc.Limit(pod.Index, rate) }); err != nil {
		return fmt.Errorf("in the pod of %s: %w", host.Attrs().Name, err)
	}
	return nil
}
