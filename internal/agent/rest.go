package agent

import (
	"context"
	"maps"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/api"
)

// restAfter is how long no pod must have been added before the programs that nobody waits for are attached: each takes some 10 ms, in
// which other pods could be.
const restAfter = 500 * time.Millisecond

// rest is what is left to do for pods that have been added.
type rest struct {
	wake, urgent chan struct{} // room for one each
	// done are the devices for which it is done, with their index.
	done map[string]int
}

// later has it done when it is quiet.
func (r rest) later() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// governed has it looked at soon whether policies are about what is sent to a pod that lacks the program for that.
func (r rest) governed() {
	select {
	case r.urgent <- struct{}{}:
	default:
	}
}

// attachRest attaches the programs of pods that few connections need, until ctx ends.
func (a *Agent) attachRest(ctx context.Context) error {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.rest.wake:
			due = time.After(restAfter)
		case <-a.rest.urgent:
			for _, name := range a.withoutRest(a.governsIngress) {
				a.attachRestOf(name)
			}
		case <-due:
			due = nil
			for _, name := range a.withoutRest(func(api.Endpoint) bool { return true }) {
				a.attachRestOf(name) // each by itself: requests come between
			}
		}
	}
}

// withoutRest lists the devices that lack something, of some endpoints.
func (a *Agent) withoutRest(of func(api.Endpoint) bool) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.rest.done, func(name string, index int) bool { return a.attached[name] != index })
	for name, e := range a.endpoints {
		if index, ok := a.attached[name]; ok && a.rest.done[name] != index && of(e) {
			names = append(names, name)
		}
	}
	return names
}

func (a *Agent) attachRestOf(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.endpoints[name]
	if !ok || a.attached[name] != e.HostIfIndex {
		return // removed meanwhile
	}
	if err := a.datapath.AttachPodRest(name, e.HostIfIndex); err != nil {
		a.log.Warn("a pod lacks a program until the next attempt", "pod", podName(e), "device", name, "error", err)
		return
	}
	a.rest.done[name] = e.HostIfIndex
}

// stackSends tells whether the host's stack sends anything that has to be translated at an uplink: for pods that go through it, and as
// a backend of Services.
func (a *Agent) stackSends() bool {
	for _, e := range a.endpoints {
		if e.ThroughStack != "" {
			return true
		}
	}
	if a.ways.services == ServicesKubeProxy {
		return true
	}
	return a.services != nil && a.services.backendHere.Load()
}

// attachForStack has the uplinks translate what the stack sends, from the first pod on that goes through it.
func (a *Agent) attachForStack() error {
	if !a.datapath.SetStackSends(true) {
		return nil
	}
	for _, u := range a.uplinks {
		if err := a.datapath.AttachUplink(u.Name, u.Index); err != nil {
			a.datapath.SetStackSends(false) // so that the next one tries again
			return err
		}
	}
	return nil
}
