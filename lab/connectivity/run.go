package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// patience is how long policies may take to be active. Tests have less of it, because their policies take no time.
var patience = 20 * time.Second

const (
	// When all outcomes are right for the first time, all checks are repeated so often, each time after a pause. An
	// outcome that changes from one time to the next is wrong.
	confirmations = 2
	pause         = 500 * time.Millisecond
	// controlPort is the first of the source ports of controls, one each. They are outside the kernel's range of
	// ephemeral ports, so no later check uses the same: a network may continue to admit a connection that it has once
	// admitted.
	controlPort = 20000
)

// Outcome is the result of a check.
type Outcome struct {
	// Connected reports whether the connection works.
	Connected bool
	// Unknown says why that is not known; nil if it is.
	Unknown error
}

// Right reports whether the outcome is known and what it has to be.
func (a Outcome) Right(q Check) bool { return a.Unknown == nil && a.Connected == q.Allowed }

// errSilent makes an outcome unknown: what does not work without policies shows nothing about them.
var errSilent = errors.New("no reply without policies either")

// Run runs all checks at once, and repeats them while an outcome is wrong and patience lasts: policies take a while to
// be active. Then it repeats them a few times more; an outcome that is wrong any of these times counts as wrong.
//
// A broken path stops the same connections as a policy. So Run first makes each connection that must not work, without
// policies, when it has to work: if it does not, its outcome is unknown. Then it calls enforce, which adds the
// policies.
func Run(ctx context.Context, checks []Check, place Places, address Address, enforce func() error) ([]Outcome, error) {
	controls, err := control(ctx, checks, place, address)
	if err != nil {
		return nil, err
	}
	if err := enforce(); err != nil {
		return nil, err
	}
	outcomes, err := patiently(ctx, checks, func() ([]Outcome, error) { return pass(ctx, checks, place, address, 0) })
	if err != nil {
		return nil, err
	}
	for range confirmations {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		again, err := pass(ctx, checks, place, address, 0)
		if err != nil {
			return nil, err
		}
		for i, q := range checks {
			outcomes[i] = worse(q, outcomes[i], again[i])
		}
	}
	for i, q := range checks {
		if outcomes[i].Right(q) && controls[i] != nil {
			outcomes[i].Unknown = controls[i]
		}
	}
	return outcomes, nil
}

// control makes the connections that must not work before policies exist, and says why one shows nothing. The other
// connections need no control: they show themselves that their paths work.
func control(ctx context.Context, checks []Check, place Places, address Address) ([]error, error) {
	var controls []Check
	var of []int
	for i, q := range checks {
		if !q.Allowed {
			q.Allowed = true
			controls, of = append(controls, q), append(of, i)
		}
	}
	outcomes, err := patiently(ctx, controls, func() ([]Outcome, error) { return pass(ctx, controls, place, address, controlPort) })
	if err != nil {
		return nil, err
	}
	failed := make([]error, len(checks))
	for i, a := range outcomes {
		switch {
		case a.Unknown != nil:
			failed[of[i]] = fmt.Errorf("without policies: %w", a.Unknown)
		case !a.Connected:
			failed[of[i]] = errSilent
		}
	}
	return failed, nil
}

// patiently repeats checks until all outcomes are right or patience is over.
func patiently(ctx context.Context, checks []Check, ask func() ([]Outcome, error)) ([]Outcome, error) {
	for begin := time.Now(); ; {
		outcomes, err := ask()
		if err != nil || allRight(checks, outcomes) || time.Since(begin) > patience {
			return outcomes, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(attempt): // what could not be tried failed at once
		}
	}
}

// pass runs every check once, all at the same time, each from a port of its own from source on, or from any port for 0.
func pass(ctx context.Context, checks []Check, place Places, address Address, source uint16) ([]Outcome, error) {
	outcomes := make([]Outcome, len(checks))
	var wait sync.WaitGroup
	for i, q := range checks {
		c := connection{from: place(q.From), to: netip.AddrPortFrom(address(q.To), q.Port), protocol: q.Protocol, expected: q.Allowed}
		if source != 0 {
			c.source = source + uint16(i)
		}
		wait.Go(func() {
			if outcomes[i].Connected, outcomes[i].Unknown = c.try(ctx); outcomes[i].Unknown != nil {
				outcomes[i].Unknown = fmt.Errorf("connect from %s to %s: %w", q.From, q.To, outcomes[i].Unknown)
			}
		})
	}
	wait.Wait()
	return outcomes, ctx.Err()
}

func allRight(checks []Check, outcomes []Outcome) bool {
	for i, q := range checks {
		if !outcomes[i].Right(q) {
			return false
		}
	}
	return true
}

// worse is the outcome that says less good of the network: a wrong one, else one that is not known.
func worse(q Check, a, b Outcome) Outcome {
	if rank(q, b) > rank(q, a) {
		return b
	}
	return a
}

func rank(q Check, a Outcome) int {
	switch {
	case a.Right(q):
		return 0
	case a.Unknown != nil:
		return 1
	}
	return 2
}
