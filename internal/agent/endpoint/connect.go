package endpoint

import (
	"errors"
	"fmt"
	"net"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/ipam"
)

// connect makes an endpoint reachable: programs and policies first, so that no packet passes unchecked.
func (e *Endpoints) connect(p agentapi.Endpoint) (closed uint64, err error) {
	if err := netdev.SetMTU(p.HostIfIndex, p.MTU); err != nil {
		return 0, err
	}
	if err := e.FailClosed.Add(failClosedPod(p)); err != nil {
		return 0, err
	}
	if closed, err = e.closeUntilKnown(p); err != nil {
		return 0, err
	}
	if p.Bandwidth != (agentapi.Bandwidth{}) {
		if err := e.Limits.Apply(p); err != nil {
			return 0, err
		}
	}
	if p.ThroughStack != "" {
		if err := e.AttachForStack(); err != nil {
			return 0, err
		}
	}
	if err := device.Pods.Open(p.HostIfIndex); err != nil {
		return 0, err
	}
	mac, err := net.ParseMAC(p.PodMAC)
	if err != nil {
		return 0, err
	}
	if p.Pool != "" {
		if err := e.connectPool(p); err != nil {
			return 0, err
		}
	}
	if p.Macvlan != nil {
		if err := e.Datapath.Macvlans.Set(node.MacvlanEntry(p)); err != nil {
			return 0, err
		}
	}
	for _, addr := range p.Addresses {
		if err := e.Datapath.ForgetConnections(addr); err != nil { // entries of an earlier pod; a killed agent may have left them
			return 0, err
		}
		if err := e.Datapath.Endpoints.Set(addr, node.EndpointEntry(p)); err != nil {
			return 0, err
		}
		if err := neigh.SetPermanent(p.HostIfIndex, addr, mac); err != nil {
			return 0, err
		}
		if err := route.Add(node.EndpointRoute(p, addr, e.node.Own, e.node.Uplink)); err != nil {
			return 0, err
		}
	}
	return closed, nil
}

// remove deletes the device of an endpoint and the endpoint; both may be gone already.
func (e *Endpoints) remove(hostDevice string) error {
	p, known := e.all[hostDevice]
	if known {
		// Before the device, so that nothing is sent to an index that another device may get.
		for _, addr := range p.Addresses {
			if err := e.Datapath.Endpoints.Delete(addr); err != nil {
				return err
			}
		}
	}
	if err := device.Pods.Delete(hostDevice); err != nil {
		return err
	}
	if !known {
		return nil
	}
	if err := e.forget(p); err != nil {
		return err
	}
	e.Log.Info("endpoint removed", "pod", p.PodName(), "addresses", p.Addresses, "device", p.HostDevice)
	return nil
}

// forget undoes Add, except for the device, which is the plugin's. It deletes a macvlan device, which a DEL without an end of the pair
// does not find: a pod can delete its end. It releases the addresses last, when nothing refers to them.
func (e *Endpoints) forget(p agentapi.Endpoint) error {
	e.FailClosed.Remove(p.HostDevice)
	var errs []error
	if p.Macvlan != nil {
		e.deleteMacvlan(p)
		key, _ := node.MacvlanEntry(p)
		errs = append(errs, e.Datapath.Macvlans.Delete(key))
	}
	for _, addr := range p.Addresses {
		errs = append(errs, e.Datapath.Endpoints.Delete(addr), route.Delete(route.Route{Prefix: node.HostPrefix(addr), Device: p.HostIfIndex}))
	}
	for _, addr := range p.Addresses { // afterwards no packet is checked by its policies
		errs = append(errs, e.Datapath.ForgetConnections(addr))
	}
	if p.Pool != "" {
		errs = append(errs, e.disconnectPool(p))
	}
	errs = append(errs, e.Limits.Remove(p.HostIfIndex), e.Datapath.Detach(p.HostDevice), e.store.remove(p.HostDevice))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove endpoint of %s: %w", p.PodName(), err)
	}
	delete(e.all, p.HostDevice)
	e.Expiry.PodGone(p.Addresses)
	e.Pool.Release(p.HostDevice)
	if p.Pool != "" {
		e.IPPools.Release(p.Attachment)
	}
	if len(p.PortMappings) > 0 && e.Services != nil {
		e.Services.UpdateHostPorts(e.HostPorts())
	}
	if e.Policies != nil {
		e.Policies.UpdatePods(e.PolicyPods())
	}
	return nil
}

func failClosedPod(p agentapi.Endpoint) failclosed.Pod {
	return failclosed.Pod{Device: p.HostDevice, Index: p.HostIfIndex, Addresses: p.Addresses}
}

func ownerOf(p agentapi.Endpoint) ipam.Owner {
	return ipam.Owner{ID: p.HostDevice, Namespace: p.Pod.Namespace}
}

// closeUntilKnown makes a new pod default-deny, if policies may concern it: see AddPod.
func (e *Endpoints) closeUntilKnown(p agentapi.Endpoint) (number uint64, err error) {
	if e.Policies == nil {
		return 0, nil
	}
	return e.Policies.AddPod(e.PolicyPods(), agentpolicy.LocalPod(p).Pod.Namespace, p.Addresses)
}
