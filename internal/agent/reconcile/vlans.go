package reconcile

import (
	"errors"
	"fmt"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/vlan"
)

// syncVLANs makes the VLAN devices of IPPools that this node may have pods of, and adds them to the facts. New ones are down until openVLANs.
// Without the pools (an incomplete snapshot), and without this node's labels, it changes nothing.
func (r *Reconciler) syncVLANs(f *node.Facts) error {
	own, known := f.Snapshot.Node(r.Config.NodeName)
	whole := known && !f.Unknown && !r.snapshot.Incomplete
	pools := node.VLANPools(f.IPPools, own)
	if len(pools) == 0 && whole && r.noVLANs && len(f.Answers) == 0 {
		return nil
	}
	devices, err := vlan.List()
	if err != nil {
		return err
	}
	f.VLANs = node.VLANs{}
	for _, pool := range pools {
		device, base, err := r.vlanOf(pool, f.Uplink, &devices, whole)
		if err != nil {
			f.VLANs[pool.Name] = node.VLAN{Missing: err}
			continue
		}
		u, err := netdev.FindByIndex(device.Index)
		f.VLANs[pool.Name] = node.VLAN{Uplink: u, Device: device, MTU: base.MTU, Missing: err}
	}
	f.Uplinks = append(f.Uplinks, f.VLANs.Devices(f.AllUplinks())...)
	for _, d := range node.Answering(devices, f.Answers, f.AllUplinks()) {
		if u, err := netdev.FindByIndex(d.Index); err == nil { // else it has vanished
			f.Uplinks = append(f.Uplinks, u)
		}
	}
	if !whole {
		return nil
	}
	var errs []error
	left := 0
	unused := node.UnusedVLANs(devices, f.VLANs, f.IPPools, f.Endpoints)
	for _, d := range unused {
		r.Log.Info("VLAN device removed: no IPPool and no pod needs it", "device", d.Name)
		errs = append(errs, vlan.Remove(d))
	}
	for _, d := range devices {
		if d.Own {
			left++
		}
	}
	r.noVLANs = left == len(unused) && errors.Join(errs...) == nil
	return errors.Join(errs...)
}

// openVLANs sets the VLAN devices up, which have their programs now, with the MTU of the device below.
func (r *Reconciler) openVLANs() error {
	var errs []error
	opened := map[int]error{}
	for name, of := range r.vlans {
		if of.Missing != nil {
			continue
		}
		err, known := opened[of.Device.Index]
		if !known {
			err = vlan.Open(of.Device, of.MTU)
			errs, opened[of.Device.Index] = append(errs, err), err
		}
		of.Missing = err
		r.vlans[name] = of
	}
	return errors.Join(errs...)
}

// vlanOf finds the VLAN device of a pool among devices, or makes it, and gives the device below.
func (r *Reconciler) vlanOf(pool *cluster.IPPool, uplink *netdev.Uplink, devices *[]vlan.Device, may bool) (d vlan.Device, base netdev.Uplink, err error) {
	if base, err = node.VLANBase(pool, uplink, netdev.FindUplink); err != nil {
		return d, base, err
	}
	own := 0
	for _, other := range *devices {
		if other.Index == base.Index {
			return d, base, fmt.Errorf("device %s is itself of VLAN %d: name the device below it as uplink", base.Name, other.Tag)
		}
		if other.Own {
			own++
		}
	}
	d, found := vlan.Find(*devices, base.Index, pool.VLAN)
	switch {
	case found && !d.Own && !d.Up:
		return d, base, fmt.Errorf("device %s %w: set it up, or delete it", d.Name, vlan.ErrDown)
	case found:
		return d, base, nil
	case !may || pool.Invalid != "":
		return d, base, fmt.Errorf("no device of VLAN %d on %s", pool.VLAN, base.Name)
	case own >= node.VLANsMax:
		return d, base, fmt.Errorf("this node has %d VLAN devices of IPPools already, at most %d", own, node.VLANsMax)
	}
	if d, err = vlan.Make(base.Name, base.Index, base.MTU, pool.VLAN); err != nil {
		return d, base, err
	}
	r.Log.Info("VLAN device created", "device", d.Name, "ippool", pool.Name, "vlan", pool.VLAN)
	*devices = append(*devices, d)
	return d, base, nil
}
