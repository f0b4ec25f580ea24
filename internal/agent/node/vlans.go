package node

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/vlan"
)

// VLANsMax bounds the VLAN devices that an agent makes: the datapath's table of uplinks has 64 entries.
const VLANsMax = 32

// VLAN is the VLAN device of an IPPool on this node, or why there is none.
type VLAN struct {
	Uplink netdev.Uplink
	// Device is that uplink, MTU that of the device below, in bytes.
	Device  vlan.Device
	MTU     int
	Missing error
}

// VLANs are those of this node by the names of the pools.
type VLANs map[string]VLAN

// uplink gives the device of a pool.
func (v VLANs) uplink(pool *cluster.IPPool) (netdev.Uplink, error) {
	found, ok := v[pool.Name]
	switch {
	case !ok:
		return netdev.Uplink{}, fmt.Errorf("this node has no device of VLAN %d of IPPool %s", pool.VLAN, pool.Name)
	case found.Missing != nil:
		return netdev.Uplink{}, fmt.Errorf("this node has no device of VLAN %d of IPPool %s: %w", pool.VLAN, pool.Name, found.Missing)
	}
	return found.Uplink, nil
}

// Problems say for which pools there is none, sorted.
func (v VLANs) Problems() (all []string) {
	for name, of := range v {
		if of.Missing != nil {
			all = append(all, fmt.Sprintf("IPPool %s: its pods do not start on this node: %v", name, of.Missing))
		}
	}
	slices.Sort(all)
	return all
}

// Devices are the devices that uplinks does not have.
func (v VLANs) Devices(uplinks []netdev.Uplink) (all []netdev.Uplink) {
	has := func(in []netdev.Uplink, u netdev.Uplink) bool {
		return slices.ContainsFunc(in, func(other netdev.Uplink) bool { return other.Index == u.Index })
	}
	for _, of := range v {
		if of.Missing == nil && !has(uplinks, of.Uplink) && !has(all, of.Uplink) {
			all = append(all, of.Uplink)
		}
	}
	slices.SortFunc(all, func(a, b netdev.Uplink) int { return a.Index - b.Index })
	return all
}

// Answering gives the devices on which this node answers for pods of deleted IPPools, and which uplinks does not have.
func Answering(devices []vlan.Device, answers map[netip.Addr]int, uplinks []netdev.Uplink) (all []vlan.Device) {
	used := map[int]bool{}
	for _, device := range answers {
		used[device] = true
	}
	for _, d := range devices {
		if used[d.Index] && !slices.ContainsFunc(uplinks, func(u netdev.Uplink) bool { return u.Index == d.Index }) {
			all = append(all, d)
		}
	}
	return all
}

// VLANPools are the IPPools with VLANs that a node may have pods of.
func VLANPools(pools []*cluster.IPPool, own cluster.Node) (all []*cluster.IPPool) {
	for _, p := range pools {
		if p.VLAN != 0 && (p.Nodes == nil || p.Nodes.Matches(own.Labels)) {
			all = append(all, p)
		}
	}
	return all
}

// UnusedVLANs are the devices made by Beeline that neither a pool of the node nor a pod needs any more. A pod of a pool that was deleted
// may need any of them.
func UnusedVLANs(devices []vlan.Device, used VLANs, pools []*cluster.IPPool, endpoints []agentapi.Endpoint) (all []vlan.Device) {
	needed := map[int]bool{}
	for _, of := range used {
		needed[of.Uplink.Index] = true
	}
	for _, e := range endpoints {
		switch {
		case e.Macvlan != nil:
			needed[e.Macvlan.Parent] = true
		case e.Pool != "" && !slices.ContainsFunc(pools, func(p *cluster.IPPool) bool { return p.Name == e.Pool }):
			return nil
		}
	}
	for _, d := range devices {
		if d.Own && !needed[d.Index] {
			all = append(all, d)
		}
	}
	return all
}

// VLANBase finds the device that a pool's VLAN is on, by its name or an address of it; of a pool that names none, the uplink to the other
// nodes.
func VLANBase(pool *cluster.IPPool, uplink *netdev.Uplink, find func(name string, addresses []netip.Addr) (netdev.Uplink, error)) (netdev.Uplink, error) {
	if pool.Uplink == "" {
		if uplink == nil {
			return netdev.Uplink{}, netdev.ErrNoUplink
		}
		return *uplink, nil
	}
	a, err := netip.ParseAddr(pool.Uplink)
	if err != nil {
		return find(pool.Uplink, nil)
	}
	u, err := find("auto", []netip.Addr{a})
	if err == nil && !holds(u, a) {
		err = fmt.Errorf("%w: none has address %s", netdev.ErrNoUplink, a)
	}
	return u, err
}
