package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// Accelerated says at which hook of an uplink this node forwards external connections, and why.
type Accelerated struct {
	// Hook is AccelerationXDP or AccelerationTC.
	Hook config.Acceleration
	// Reason is a clause that follows "because", for the operator.
	Reason string
}

// chooseHook is the hook to try on a device with this driver. The driver is the kind of a virtual device ("veth",
// "vlan"), and "device" for a physical one.
func chooseHook(a config.Acceleration, services bool, driver string) Accelerated {
	switch {
	case !services:
		return Accelerated{config.AccelerationTC, "no Services are translated here"}
	case a == config.AccelerationXDP:
		return Accelerated{config.AccelerationXDP, "it is requested"}
	case a != config.AccelerationAuto:
		return Accelerated{config.AccelerationTC, "it is requested"}
	case driver == "veth":
		// veth_xdp_rcv_skb copies each packet that a network stack has sent, which is nearly every packet.
		return Accelerated{config.AccelerationTC, "veth copies each packet for XDP that a stack has sent"}
	}
	return Accelerated{config.AccelerationXDP, "the driver has it"}
}

// Accelerate attaches wire_xdp to an uplink, or detaches it, by config.Datapath.Acceleration and what the device
// supports. It returns which it did. It replaces a program of an earlier agent in place, since many drivers take the
// link down for a second on attach and detach. Call it after AttachUplink: wire_xdp passes the other packets to
// from_wire.
//
// With AccelerationAuto a device without XDP is no error. With AccelerationXDP it is one, and from_wire forwards.
func (t *Attacher) Accelerate(name string, ifindex int) (Accelerated, error) {
	kind, err := netdev.Kind(ifindex)
	if err != nil {
		return Accelerated{}, fmt.Errorf("find device %s: %w", name, err)
	}
	want := chooseHook(t.objects.Config.Acceleration, t.objects.Config.Services, kind)
	if want.Hook == config.AccelerationXDP {
		err := t.attachXDP(Attachment{name, bpf.ProgWireXdp}, ifindex)
		if err == nil {
			return want, t.allowXDPTo(ifindex)
		}
		want = Accelerated{config.AccelerationTC, fmt.Sprintf("the device takes no XDP program: %v", err)}
		if t.objects.Config.Acceleration == config.AccelerationXDP {
			return want, fmt.Errorf("attach %s to %s: %w", bpf.ProgWireXdp, name, err)
		}
	}
	return want, errors.Join(t.forbidXDPTo(ifindex), t.detach(Attachment{name, bpf.ProgWireXdp}))
}

// attachXDP updates the pinned link of an earlier agent, or makes one in driver mode. The generic mode, after the
// driver, is slower than tc.
func (t *Attacher) attachXDP(a Attachment, ifindex int) error {
	program, err := t.objects.Program(bpf.ProgWireXdp)
	if err != nil {
		return err
	}
	update := func(old link.Link) (bool, error) {
		if !linkIsAt(old, uint64(ifindex)) {
			return false, nil
		}
		if err := old.Update(program); err != nil {
			return false, fmt.Errorf("update link: %w", err)
		}
		return true, nil
	}
	return renewLink(t.pin(a), update, func() (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Program: program, Interface: ifindex, Flags: link.XDPDriverMode})
	})
}

// allowXDPTo lets wire_xdp at other uplinks redirect to this one.
func (t *Attacher) allowXDPTo(ifindex int) error {
	if err := t.objects.Maps.XdpUplinks.Put(uint32(ifindex), uint32(ifindex)); err != nil {
		return fmt.Errorf("allow XDP redirects to device %d: %w", ifindex, err)
	}
	return nil
}

func (t *Attacher) forbidXDPTo(ifindex int) error {
	if err := t.objects.Maps.XdpUplinks.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forbid XDP redirects to device %d: %w", ifindex, err)
	}
	return nil
}

// checkAcceleration reports that an uplink has lost the program that Accelerate attached.
func (t *Attacher) checkAcceleration(name string, ifindex int) error {
	err := checkLink(t.pin(Attachment{name, bpf.ProgWireXdp}), uint64(ifindex))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is not attached to %s: %w", bpf.ProgWireXdp, name, err)
	}
	return nil
}
