package harness

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

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// prepareXDP lets programs be run as if packets came from this device, which needs a receive queue that is ready for
// XDP, and gives the stage the routes and the neighbour that bpf_fib_lookup looks for.
func prepareXDP(name, peer string) error {
	pass, err := PassXDP()
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
	if _, err := sysctl.EnableForwarding(name, true, true); err != nil {
		return err
	}
	for _, via := range []netip.Addr{fixtures.Addr("172.30.0.9"), fixtures.Addr("fd00:172:30::9")} {
		own, all := netip.PrefixFrom(fixtures.NodeA.V4, 24), fixtures.Prefix("0.0.0.0/0")
		if via.Is6() {
			own, all = netip.PrefixFrom(fixtures.NodeA.V6, 64), fixtures.Prefix("::/0")
		}
		address := &netlink.Addr{IPNet: &net.IPNet{IP: own.Addr().AsSlice(), Mask: net.CIDRMask(own.Bits(), own.Addr().BitLen())}}
		if via.Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := errors.Join(netlink.AddrAdd(dev, address), neigh.SetPermanent(dev.Attrs().Index, via, fixtures.Router[:]),
			route.Add(route.Route{Prefix: all, Via: via, Device: dev.Attrs().Index})); err != nil {
			return fmt.Errorf("prepare routes: %w", err)
		}
	}
	return nil
}

// PassXDP is a program that lets everything pass.
func PassXDP() (*ebpf.Program, error) {
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

// runXDP runs wire_xdp as if eth0 had brought the packet. Sending by either way is VerdictRedirect.
func (r *Harness) runXDP(program *ebpf.Program, in Run) (Outcome, error) {
	if len(in.In) < fixtures.EthLen {
		return Outcome{}, errors.New("XDP gets no packet without an Ethernet header")
	}
	o := ebpf.RunOptions{
		Data: in.In, DataOut: make([]byte, len(in.In)+64),
		Context: &xdpMD{DataEnd: uint32(len(in.In)), IngressIfindex: uint32(r.Netns.Devices["eth0"])},
	}
	code, err := program.Run(&o)
	if err != nil {
		return Outcome{}, fmt.Errorf("run %s: %w", in.Program, err)
	}
	verdicts := map[uint32]Verdict{xdpDrop: VerdictDrop, xdpPass: VerdictNext, xdpTransmit: VerdictRedirect, xdpRedirect: VerdictRedirect}
	v, ok := verdicts[code]
	if !ok {
		return Outcome{}, fmt.Errorf("%s returns %d", in.Program, code)
	}
	return Outcome{Verdict: v, Out: o.DataOut, Mark: in.Mark}, nil
}
