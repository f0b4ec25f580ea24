package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
)

// prepareXDP lets programs be run as if packets came from this device, which needs a receive queue that is ready for
// XDP, and gives the stage the routes and the neighbour that bpf_fib_lookup looks for.
func prepareXDP(name, peer string) error {
	pass, err := passXDP()
	if err != nil {
		return err
	}
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	other, err := netlink.LinkByName(peer)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(dev), netlink.LinkSetUp(other)); err != nil {
		return err
	}
	if _, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: dev.Attrs().Index, Flags: link.XDPDriverMode}); err != nil {
		return fmt.Errorf("prepare %s for XDP: %w", name, err)
	}
	if _, err := device.EnableForwarding(name, true, true); err != nil {
		return err
	}
	for _, via := range []netip.Addr{addr("172.30.0.9"), addr("fd00:172:30::9")} {
		own, all := netip.PrefixFrom(nodeA.v4, 24), prefix("0.0.0.0/0")
		if via.Is6() {
			own, all = netip.PrefixFrom(nodeA.v6, 64), prefix("::/0")
		}
		address := &netlink.Addr{IPNet: &net.IPNet{IP: own.Addr().AsSlice(), Mask: net.CIDRMask(own.Bits(), own.Addr().BitLen())}}
		if via.Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := errors.Join(netlink.AddrAdd(dev, address), device.SetNeighbour(dev.Attrs().Index, via, router[:]),
			device.AddRoute(device.Route{Prefix: all, Via: via, Device: dev.Attrs().Index})); err != nil {
			return fmt.Errorf("prepare routes: %w", err)
		}
	}
	return nil
}

// passXDP is a program that lets everything pass.
func passXDP() (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pass", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
}

// What an XDP program returns: enum xdp_action of include/uapi/linux/bpf.h.
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpTransmit = 3
	xdpRedirect = 4
)

// xdpMD is struct xdp_md of include/uapi/linux/bpf.h.
type xdpMD struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// runXDP runs wire_xdp as if eth0 had brought the packet. Sending by either way is verdictRedirect.
func (r *rig) runXDP(program *ebpf.Program, in run) (outcome, error) {
	if len(in.in) < ethLen {
		return outcome{}, errors.New("XDP gets no packet without an Ethernet header")
	}
	o := ebpf.RunOptions{
		Data: in.in, DataOut: make([]byte, len(in.in)+64),
		Context: &xdpMD{DataEnd: uint32(len(in.in)), IngressIfindex: uint32(r.stage.devices["eth0"])},
	}
	code, err := program.Run(&o)
	if err != nil {
		return outcome{}, fmt.Errorf("run %s: %w", in.program, err)
	}
	verdicts := map[uint32]verdict{xdpDrop: verdictDrop, xdpPass: verdictNext, xdpTransmit: verdictRedirect, xdpRedirect: verdictRedirect}
	v, ok := verdicts[code]
	if !ok {
		return outcome{}, fmt.Errorf("%s returns %d", in.program, code)
	}
	return outcome{v, o.DataOut, in.mark}, nil
}
