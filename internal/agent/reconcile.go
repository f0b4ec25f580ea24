package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/device"
)

// reconcile makes the kernel hold what the cluster and the pods ask for. A part that fails does not keep
// the others from being done.
func (a *Agent) reconcile() {
	a.mu.Lock()
	defer a.mu.Unlock()
	begin := time.Now()
	err := a.reconcileLocked()
	a.metrics.reconciled(time.Since(begin), err)
	switch {
	case err != nil && (a.failure == nil || a.failure.Error() != err.Error()):
		a.log.Error("reconcile", "error", err)
	case err == nil && a.failure != nil:
		a.log.Info("node is ready", "uplink", a.uplink.Name, "mtu", a.current.mtu, "endpoints", len(a.endpoints), "nodes", len(a.current.nodes))
	}
	a.failure = err
	a.lookAgain()
}

// reconcileLocked goes over everything again when a pod has vanished in the middle: what cannot be done for a
// device that is gone is no failure of the node.
func (a *Agent) reconcileLocked() error {
	for {
		err := a.reconcileOnce()
		if err == nil {
			return nil
		}
		gone, dropErr := a.dropGoneEndpoints()
		if gone == 0 {
			return errors.Join(err, dropErr)
		}
	}
}

func (a *Agent) reconcileOnce() error {
	if _, err := a.dropGoneEndpoints(); err != nil {
		return err
	}
	if a.snapshot == nil {
		return errNotReady // nothing is known of the cluster, which is not to know that it is empty
	}
	facts, err := a.facts()
	if err != nil {
		return err
	}
	want, before := desire(facts), a.current.problems
	a.current = want
	defer func() {
		for _, p := range a.current.problems {
			if !slices.Contains(before, p) {
				a.log.Warn("problem", "problem", p)
			}
		}
	}()
	if _, err := a.pool.SetPrefixes(want.podCIDRs); err != nil {
		return fmt.Errorf("set pod ranges: %w", err)
	}
	if err := a.apply(want); err != nil {
		return err
	}
	// A node that is not told of while not everything is known goes on as the node that it was.
	_, known := a.snapshot.Node(a.config.NodeName)
	if !known && !a.snapshot.Incomplete || len(want.podCIDRs) == 0 || a.uplink == nil {
		return errors.New(strings.Join(want.problems, "; "))
	}
	a.install()
	a.rest.later()
	return nil
}

// facts reads what the desired state depends on.
func (a *Agent) facts() (facts, error) {
	f := facts{config: a.config, snapshot: a.snapshot, noIPv6: !device.HasIPv6()}
	own, known := a.snapshot.Node(a.config.NodeName)
	if a.snapshot.Incomplete || !known {
		found, err := a.datapath.Routes.All()
		if err != nil {
			return f, err
		}
		for _, p := range a.config.NonMasquerade {
			delete(found, p) // of the configuration, and no node's
		}
		f.snapshot, f.found = withFound(a.snapshot, a.config.NodeName, found)
		f.unknown = !known
		own, _ = f.snapshot.Node(a.config.NodeName)
	}
	uplink, err := device.FindUplink(list(a.config.Uplink)[0], own.Addresses)
	switch {
	case err == nil:
		f.uplink = &uplink
		if f.neighbours, err = device.Neighbours(uplink.Index); err != nil {
			return f, err
		}
	case !errors.Is(err, device.ErrNoUplink):
		return f, err
	}
	for _, e := range a.endpoints {
		f.endpoints = append(f.endpoints, e)
	}
	if f.uplink != nil {
		if f.uplinks, f.noUplinks, err = device.FindMoreUplinks(uplink, list(a.config.Uplink)); err != nil {
			return f, err
		}
	}
	a.uplink, a.uplinks, a.own = f.uplink, f.allUplinks(), own
	if f.held, err = device.Held(own.Addresses); err != nil {
		return f, err
	}
	if f.local, err = device.LocalAddresses(); err != nil {
		return f, err
	}
	f.tunnel = a.syncTunnel(f)
	return f, nil
}

// apply carries the desired state into the kernel. Order matters: tables are filled before programs use
// them, and programs are in place before the stack forwards.
func (a *Agent) apply(want desired) error {
	var errs []error
	step := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	_, err := a.datapath.Endpoints.Sync(want.endpoints)
	step("endpoints", err)
	step("tunnel sources", a.applyTunnelSources(want.tunnelSources))
	_, err = a.datapath.Routes.Sync(want.routes)
	step("routes", err)
	_, err = a.datapath.Uplinks.Sync(want.uplinks)
	step("uplinks", err)
	step("ports of translation", a.reservePorts())
	a.feedServices(want)
	a.feedPolicies(want)
	step("programs", a.attachPrograms(want))
	if len(errs) == 0 { // else programs of that version may still be at work
		step("rules of earlier versions", a.removeOldRules())
	}
	_, err = device.SyncRoutes(want.kernelRoutes)
	step("kernel routes", err)
	step("routing rules", a.applyTunnelRules(want))
	step("routing rules of closed pods", a.closer.renew(a.policies == nil))
	step("tunnel device", a.removeTunnel(want))
	for name, e := range a.endpoints {
		if err := a.followMTU(name, e, want.mtu); err != nil {
			// The pod's own affair (a program of its own may refuse the MTU), and no reason to refuse others.
			a.current.podProblem(e.Pod, "pod %s has MTU %d instead of %d: %v", podName(e), e.MTU, want.mtu, err)
		}
	}
	for _, u := range a.uplinks {
		changed, err := device.EnableForwarding(u.Name, true, true)
		a.logSettings(changed)
		step("forwarding", err)
	}
	if a.uplink != nil {
		changed, err := device.AskNeighboursAgain(a.uplink.Name)
		a.logSettings(changed)
		step("neighbour settings", err)
		changed, err = device.AnnounceMAC(a.uplink.Name)
		a.logSettings(changed)
		step("announcement settings", err)
		step("neighbours", device.ManageNeighbours(a.uplink.Index, want.neighbours))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return a.datapath.Lease.Renew(leaseTime)
}

// removeOldRules removes, once, the rules by which earlier versions masqueraded: the programs do so from now on.
func (a *Agent) removeOldRules() error {
	if a.oldRulesRemoved {
		return nil
	}
	removed, err := device.RemoveOldRules()
	if removed {
		a.log.Info("masquerading rules of an earlier version removed", "table", "inet beeline")
	}
	a.oldRulesRemoved = err == nil
	return err
}

func (a *Agent) logSettings(changed []device.SysctlChange) {
	for _, c := range changed {
		a.log.Info("kernel setting changed", "setting", c.String())
	}
}

// attach puts the current programs on every device that needs them and takes them off the others. It does
// so once for each device, until forgetDetached notices that somebody else has taken them off.
func (a *Agent) attach(want desired) error {
	var errs []error
	wanted := map[string]bool{}
	attach := func(name string, index int, put func(name string, index int) error) {
		wanted[name] = true
		if a.attached[name] == index {
			return
		}
		if err := put(name, index); err != nil {
			errs = append(errs, err)
			return
		}
		a.attached[name] = index
	}
	a.attachPods(attach)
	if a.datapath.SetStackSends(a.stackSends()) {
		for _, u := range a.uplinks {
			delete(a.attached, u.Name)
		}
	}
	for _, u := range a.uplinks {
		attach(u.Name, u.Index, a.attachUplink)
	}
	if want.tunnel.index != 0 {
		attach(device.TunnelName, want.tunnel.index, a.datapath.AttachTunnel)
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // nothing is taken off while something is not yet on
	}
	present, err := a.datapath.Attachments()
	if err != nil {
		return err
	}
	for _, p := range present {
		// Those of the tunnel device stay for as long as it is there, wanted or not: without them it would bring in
		// what anybody sends. removeTunnel takes them off.
		if !wanted[p.Device] && p.Device != device.TunnelName {
			errs = append(errs, a.datapath.Detach(p.Device))
			delete(a.attached, p.Device)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return a.datapath.Commit()
}

// attachPods does so with pods' devices, each by a call of attach. Pods that lack the program for what is sent to them are no error. What
// becomes of those that policies govern, and that lack this one or that for what they send, is the affair of policies.
func (a *Agent) attachPods(attach func(name string, index int, put func(name string, index int) error)) {
	unguarded := false
	for name, e := range a.endpoints {
		attach(name, e.HostIfIndex, func(string, int) error {
			lacks, err := a.rest.renew(e)
			unguarded = unguarded || lacks
			return err
		})
	}
	a.closer.takeOver()
	if unguarded && a.policies != nil {
		_ = a.policies.pass() // what failed is in the outcome
	}
}

// attachUplink puts the programs on a device to the world. One whose driver cannot forward is left to tc.
func (a *Agent) attachUplink(name string, index int) error {
	if err := a.datapath.AttachUplink(name, index); err != nil {
		return err
	}
	got, err := a.datapath.Accelerate(name, index)
	if err != nil && got.Place == "" {
		return err
	}
	a.accelerated[name] = acceleration{got, err}
	return nil
}

// followMTU gives an existing pod the MTU of today's uplink.
func (a *Agent) followMTU(name string, e api.Endpoint, mtu int) error {
	if mtu == 0 || e.MTU == mtu {
		return nil
	}
	if err := device.SetPairMTU(e.HostIfIndex, e.Netns, mtu); err != nil {
		return err
	}
	a.log.Info("pod has a new MTU", "pod", podName(e), "old", e.MTU, "new", mtu)
	e.MTU = mtu
	a.endpoints[name] = e
	return a.store.save(e)
}
