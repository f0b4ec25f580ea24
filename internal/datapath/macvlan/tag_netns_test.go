package macvlan_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// A pod can give a frame a VLAN tag that is not in the data: its own program tags what leaves by a device that it has made, and another one
// redirects that to eth0 without the kernel's inserting the tag. The tag opens nothing: neither VLANs, nor (tag 0) the link itself.
func TestMacvlanTagsOfPods(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true}})
	attacker, victim := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
	external := n.ExternalOnSwitch(4)
	for _, tag := range []int32{0, 7, 4094} {
		attacker.Do(t, func() error { return redirectTagged(t, fmt.Sprintf("tag%d", tag), tag) })
		for name, frame := range map[string]fixtures.Packet{
			"its own MAC and address":  fixtures.Eth(attacker.Mac, fixtures.Router).Ipv4(attacker.V4, external).Udp(1, 7),
			"a neighbour's":            fixtures.Eth(victim.Mac, fixtures.Router).Ipv4(victim.V4, external).Udp(1, 7),
			"the node's":               fixtures.Eth(n.A.Mac, fixtures.Router).Ipv4(n.A.V4, external).Udp(1, 7),
			"an unknown MAC":           fixtures.Eth(fwd.MAC{2, 9, 9, 9, 9, 9}, fixtures.Router).Ipv4(attacker.V4, external).Udp(1, 7),
			"ARP: the router is here":  arpFrame(attacker.Mac, broadcast, 2, attacker.Mac, external, victim.V4),
			"ARP: the node is here":    arpFrame(attacker.Mac, broadcast, 2, attacker.Mac, n.A.V4, external),
			"ARP by the node's MAC":    arpFrame(n.A.Mac, broadcast, 2, n.A.Mac, external, victim.V4),
			"another tag in the frame": fixtures.Eth(attacker.Mac, fixtures.Router).Ether(fixtures.EtherVLAN).Payload("\x00\x09\x08\x00E"),
		} {
			t.Run(fmt.Sprintf("tag %d, %s", tag, name), func(t *testing.T) {
				want := maps.Clone(n.A.Dropped(t))
				want["from_macvlan spoofed_source"]++
				attacker.Send(t, fmt.Sprintf("tag%d", tag), frame.Bytes())
				n.AwaitDropped(t, n.A, want)
			})
		}
	}
}

// redirectTagged makes a device in the pod whose frames leave by eth0 with a tag beside the data.
func redirectTagged(t *testing.T, name string, tag int32) error {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: name, MTU: 1500})
	veth.PeerName = name + "p"
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	from, err := netlink.LinkByName(name)
	to, err2 := netlink.LinkByName(veth.PeerName)
	eth0, err3 := netlink.LinkByName("eth0")
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	push, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, 0x0081), // ETH_P_8021Q in network byte order
		asm.Mov.Imm(asm.R3, tag),
		asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, 0), // TC_ACT_OK
		asm.Return(),
	}})
	if err != nil {
		return err
	}
	t.Cleanup(func() { push.Close() })
	redirect, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(eth0.Attrs().Index)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	}})
	if err != nil {
		return err
	}
	t.Cleanup(func() { redirect.Close() })
	clsact := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: from.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}, QdiscType: "clsact"}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: from.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:          push.FD(), Name: "push", DirectAction: true,
	}
	err = errors.Join(sysctl.SetDevice("ipv6", name, "disable_ipv6=1"), sysctl.SetDevice("ipv6", veth.PeerName, "disable_ipv6=1"), netlink.QdiscAdd(clsact), netlink.FilterAdd(filter), netlink.LinkSetXdpFdWithFlags(to, redirect.FD(), unix.XDP_FLAGS_SKB_MODE),
		netlink.LinkSetUp(from), netlink.LinkSetUp(to))
	for until := time.Now().Add(10 * time.Second); err == nil; time.Sleep(10 * time.Millisecond) {
		now, err := netlink.LinkByIndex(from.Attrs().Index)
		if err != nil || now.Attrs().OperState == netlink.OperUp { // before, it drops what it sends
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("device %s is %s", name, now.Attrs().OperState)
		}
	}
	return err
}
