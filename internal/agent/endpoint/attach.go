package endpoint

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Attach attaches the current programs to every pod's device, once for each device until ForgetDetached finds them
// detached. A pod that lacks a program which it needs is closed, and a pass of policies reports it.
func (e *Endpoints) Attach() error {
	var errs []error
	incomplete := false
	for name, p := range e.all {
		if e.FailClosed.Attached(name, p.HostIfIndex) {
			continue
		}
		lacks, err := e.FailClosed.Adopt(failClosedPod(p))
		incomplete = incomplete || lacks
		errs = append(errs, err)
	}
	e.FailClosed.AdoptionDone()
	if incomplete && e.Policies != nil {
		_ = e.Policies.Pass() // errors are in the outcome
	}
	return errors.Join(errs...)
}

// ForgetDetached checks that the programs are still attached; the kernel does not notify of it. The next Attach
// attaches them to the devices without.
func (e *Endpoints) ForgetDetached() { e.FailClosed.ForgetDetached(e.Datapath.CheckPod) }

// FollowMTU sets the MTU of existing pods to that of new ones, and calls failed for each pod where that fails.
func (e *Endpoints) FollowMTU(mtu int, failed func(agentapi.Endpoint, error)) {
	for _, p := range e.all {
		if err := e.followMTU(p, mtu); err != nil {
			failed(p, err)
		}
	}
}

// followMTU sets the MTU of an existing pod to that of the uplink.
func (e *Endpoints) followMTU(p agentapi.Endpoint, mtu int) error {
	if p.Macvlan != nil {
		if uplink, err := e.poolUplink(p.Pool); err == nil {
			mtu = min(mtu, uplink.MTU)
		}
	}
	if mtu == 0 || p.MTU == mtu {
		return nil
	}
	if err := device.Pods.SetMTU(p.HostIfIndex, p.Netns, mtu); err != nil {
		return err
	}
	if p.Macvlan != nil {
		if err := setMacvlanMTU(p, mtu); err != nil {
			return err
		}
	}
	e.Log.Info("pod has a new MTU", "pod", p.PodName(), "old", p.MTU, "new", mtu)
	p.MTU = mtu
	e.all[p.HostDevice] = p
	return e.store.save(p)
}
