package device

import (
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/macvlan"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sock"
)

// macvlanAlias is the alias of the host end of a pod with a macvlan device. Only the node can change it.
const macvlanAlias = "macvlan"

// createMacvlan makes a pair and, beside its end in the pod, which has the name of the host end, the macvlan device. The MACs are random:
// no other pod can know them beforehand.
func (p pairs) createMacvlan(pod ns.NetNS, spec PodSpec, host, inPod netlink.LinkAttrs) (made PodDevice, err error) {
	pair := spec
	pair.Kind = Veth
	inPod.Name = host.Name
	host.HardwareAddr, inPod.HardwareAddr = macvlan.NewMAC(), macvlan.NewMAC()
	if made, err = p.createPair(pair, host, inPod); err != nil {
		return PodDevice{}, err
	}
	defer func() {
		if err != nil {
			made, err = PodDevice{}, errors.Join(err, p.Delete(made.HostName))
		}
	}()
	err = pod.Do(func(ns.NetNS) error {
		made.NetnsCookie, err = sock.NetnsCookie()
		return err
	})
	if err != nil {
		return made, fmt.Errorf("in %s: %w", spec.Netns, err)
	}
	// Before the device, so that whoever deletes the pair knows of it.
	if err := netlink.LinkSetAlias(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: made.HostIndex}}, macvlanAlias); err != nil {
		return made, fmt.Errorf("set the alias of %s: %w", made.HostName, err)
	}
	device, err := macvlan.Create(pod, macvlan.Spec{Parent: spec.Parent, Name: spec.IfName, MAC: macvlan.NewMAC(), MTU: spec.MTU})
	if err != nil {
		return made, err
	}
	made.PodName, made.PodIndex, made.PodMAC = device.Name, device.Index, device.MAC
	return made, nil
}

// DeleteMacvlan implements PodDevices.
func (pairs) DeleteMacvlan(netns, ifName string) error {
	err := ns.WithNetNSPath(netns, func(ns.NetNS) error {
		link, err := netlink.LinkByName(ifName)
		if rtnl.IsNotFound(err) {
			return nil
		}
		if err == nil && Kind(link.Type()) == Macvlan {
			err = netlink.LinkDel(link)
		}
		if err != nil && !rtnl.IsNotFound(err) {
			return fmt.Errorf("delete macvlan device %s in the pod: %w", ifName, err)
		}
		return nil
	})
	var gone ns.NSPathNotExistErr
	var deleted ns.NSPathNotNSErr
	if errors.As(err, &gone) || errors.As(err, &deleted) {
		return nil
	}
	return err
}
