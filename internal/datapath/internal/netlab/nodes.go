package netlab

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/clsact"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

// ProgramsOn gives the ids of the programs at ingress and egress of a device, as the kernel has them: tcx links, at
// the pod's end of a netkit device instead of ingress, or our filters where the datapath uses those.
func (n *Node) ProgramsOn(t *testing.T, ifindex int) []ebpf.ProgramID {
	t.Helper()
	var all []ebpf.ProgramID
	n.Do(t, func() error {
		if !n.D.Objects.Tcx {
			filters, err := clsact.List(ifindex)
			for _, f := range filters {
				all = append(all, ebpf.ProgramID(f.ProgramID))
			}
			return err
		}
		ends := []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress}
		kind, err := netdev.Kind(ifindex)
		if err != nil {
			return err
		}
		if device.Kind(kind) == device.Netkit {
			ends[0] = ebpf.AttachNetkitPeer
		}
		for _, at := range ends {
			result, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: at})
			if err != nil {
				return err
			}
			for _, p := range result.Programs {
				all = append(all, p.ID)
			}
		}
		return nil
	})
	return all
}

func (n *Node) Close(t *testing.T) {
	t.Helper()
	if err := n.D.Close(); err != nil {
		t.Fatal(err)
	}
}

// End is this node's end of tunnels: the other node's routes lead to it.
func (n *Node) End(ipv6 bool) netip.Addr {
	if ipv6 {
		return n.V6
	}
	return n.V4
}

// tunnel replaces the node's ways to another one, whose pods look like far, by a tunnel.
func (n *Node) tunnel(tb testing.TB, other *Node, far fixtures.Member, o Options) {
	tb.Helper()
	end := other.End(o.TunnelIPv6)
	mtu := 1500 - vxlan.Overhead(end)
	n.Do(tb, func() (err error) {
		spec := vxlan.Spec{Port: fixtures.VxlanPort, MTU: mtu, Addresses: []netip.Addr{n.V4, n.V6}}
		// The programs follow in start, as when an agent adopts a device.
		if n.TunnelIndex, _, err = vxlan.Sync(spec, func(int) error { return nil }); err != nil {
			return err
		}
		var sources []netip.Prefix
		for _, family := range fixtures.Families {
			pods, address := RangeOf(far.Addr(family)), netip.PrefixFrom(other.Addr(family), other.Addr(family).BitLen())
			n.Routes[pods] = fixtures.TunnelRoute(n.TunnelIndex, end, mtu)
			n.Routes[address] = n.Routes[pods]
			toPods, toNode := vxlan.Route(pods, n.TunnelIndex, mtu), vxlan.Route(address, n.TunnelIndex, mtu)
			toPods.Source = n.Addr(family)
			toNode.Table = route.TunnelTable
			if err := errors.Join(route.Add(toPods), route.Add(toNode)); err != nil {
				return err
			}
			sources = append(sources, RangeOf(n.pods[0].Addr(family)))
		}
		_, err = route.SyncTunnelRules(sources)
		return err
	})
}
