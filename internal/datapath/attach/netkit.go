package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// isNetkit reports whether a program belongs to the pod's end of a netkit pair: from_pod, which runs there while the pod
// sends. A program for packets to the pod is at the tcx egress of the host end, as it is for veth: a program of the
// primary device would also see what from_wire redirects.
func (t *Attacher) isNetkit(program string, ifindex int) (bool, error) {
	if program != bpf.ProgFromPod || !t.objects.Config.Netkit {
		return false, nil
	}
	kind, err := netdev.Kind(ifindex)
	return device.Kind(kind) == device.Netkit, err
}

// attachNetkit attaches a program to the pod's end of the pair whose host end has this index, as attachLink does.
func (t *Attacher) attachNetkit(a Attachment, ifindex int, h hook) error {
	isAt := func(old link.Link) bool {
		at, err := linkIsAtPodEnd(old, ifindex)
		return at && err == nil
	}
	return renewLink(t.pin(a), t.update(a, h, isAt), func() (link.Link, error) {
		return link.AttachNetkit(link.NetkitOptions{Interface: ifindex, Program: h.program, Attach: ebpf.AttachNetkitPeer, Anchor: link.Head()})
	})
}

// linkIsAtPodEnd reports whether a link is at the pod's end of the pair whose host end has this index. The link itself
// knows only the index of the pod's end in the pod's network namespace, which is not unique.
func linkIsAtPodEnd(l link.Link, ifindex int) (bool, error) {
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("read link: %w", err)
	}
	attached, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachNetkitPeer})
	if err != nil {
		return false, fmt.Errorf("list the programs of the pod's end: %w", err)
	}
	return slices.ContainsFunc(attached.Programs, func(p link.AttachedProgram) bool {
		id, known := p.LinkID()
		return known && id == info.ID
	}), nil
}

// checkNetkit reports that a pinned link is not at the pod's end of a pair.
func checkNetkit(pin string, ifindex int) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("open pinned link: %w", err)
	}
	defer l.Close()
	at, err := linkIsAtPodEnd(l, ifindex)
	if err == nil && !at {
		err = errors.New("its link is detached")
	}
	return err
}
