package packetgen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Sink counts the UDP packets to one address and port that reach a device, and takes them off it. It counts from the
// moment it is made to its Close.
type Sink struct {
	program *ebpf.Program
	link    link.Link
	arrived *ebpf.Variable
}

// CountOnWire counts at XDP, before anything else sees the packets, and hands them on to another device of the same
// namespace, or ends them where onward is empty. Packets to other addresses pass.
func CountOnWire(netns testbed.Netns, device string, backend netip.AddrPort, onward string) (*Sink, error) {
	index, err := deviceIndex(netns, device)
	if err != nil {
		return nil, err
	}
	var next uint32
	if onward != "" {
		if next, err = deviceIndex(netns, onward); err != nil {
			return nil, err
		}
	}
	return newSink(netns, "arrive_wire", backend, next, func(p *ebpf.Program) (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Program: p, Interface: int(index), Flags: link.XDPDriverMode})
	})
}

// PassOnWire counts nothing and lets all packets pass. What the other end of a veth pair sends back by XDP_TX waits for
// ever where no XDP program is attached: the kernel looks for one, and not for NAPI, before it wakes the receiver
// (veth_xdp_flush, Linux 6.18).
func PassOnWire(netns testbed.Netns, device string) (*Sink, error) {
	return CountOnWire(netns, device, netip.AddrPortFrom(netip.IPv4Unspecified(), 0), "")
}

// CountInStack counts at tc, ahead of all other programs there, and ends the packets. It needs tcx (Linux 6.6).
func CountInStack(netns testbed.Netns, device string, backend netip.AddrPort) (*Sink, error) {
	index, err := deviceIndex(netns, device)
	if err != nil {
		return nil, err
	}
	return newSink(netns, "arrive_stack", backend, 0, func(p *ebpf.Program) (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Program: p, Interface: int(index), Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	})
}

func newSink(netns testbed.Netns, program string, backend netip.AddrPort, onward uint32, attach func(*ebpf.Program) (link.Link, error)) (*Sink, error) {
	spec, err := loadPacketgen()
	if err != nil {
		return nil, err
	}
	constants := map[string]any{"backend_port": binary.BigEndian.AppendUint16(nil, backend.Port()), "onward": onward, "ipv6": backend.Addr().Is6()}
	if backend.Addr().Is6() {
		constants["backend6"] = backend.Addr().As16()
	} else {
		constants["backend4"] = backend.Addr().As4()
	}
	if err := set(spec, constants); err != nil {
		return nil, err
	}
	var loaded struct {
		Wire    *ebpf.Program  `ebpf:"arrive_wire"`
		Stack   *ebpf.Program  `ebpf:"arrive_stack"`
		Arrived *ebpf.Variable `ebpf:"arrived"`
	}
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return nil, fmt.Errorf("load packet counter: %w", err)
	}
	s := &Sink{program: loaded.Wire, arrived: loaded.Arrived}
	unused := loaded.Stack
	if program == "arrive_stack" {
		s.program, unused = loaded.Stack, loaded.Wire
	}
	unused.Close()
	err = netns.Do(func() (err error) {
		s.link, err = attach(s.program)
		return err
	})
	if err != nil {
		s.program.Close()
		return nil, fmt.Errorf("attach packet counter: %w", err)
	}
	return s, nil
}

// Arrived is how many packets have come so far.
func (s *Sink) Arrived() (n uint64, err error) {
	if err := s.arrived.Get(&n); err != nil {
		return 0, fmt.Errorf("read packet counter: %w", err)
	}
	return n, nil
}

// Close detaches and unloads the counter.
func (s *Sink) Close() error {
	return errors.Join(s.link.Close(), s.program.Close())
}

func deviceIndex(netns testbed.Netns, name string) (index uint32, err error) {
	err = netns.Do(func() error {
		device, err := net.InterfaceByName(name)
		if err != nil {
			return fmt.Errorf("find device %s: %w", name, err)
		}
		index = uint32(device.Index)
		return nil
	})
	return index, err
}
