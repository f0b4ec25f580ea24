package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/lab/wait"
)

// patience is the timeout until policies are enforced. Tests shorten it.
var patience = 20 * time.Second

const (
	// After all outcomes are right for the first time, all checks are repeated this often, each time after a pause. An
	// outcome that changes is wrong.
	confirmations = 2
	pause         = 500 * time.Millisecond
	// controlPort is the first source port of controls, one each. They are outside the kernel's ephemeral range, so that
	// no check reuses one: a network may continue to allow an established connection.
	controlPort = 20000
)

// Outcome is the result of a check.
type Outcome struct {
	// Connected reports whether the connection succeeds.
	Connected bool
	// Unknown is the reason if the outcome is unknown, or nil.
	Unknown error
}

// Right reports whether the outcome is known and wanted.
func (a Outcome) Right(q Check) bool { return a.Unknown == nil && a.Connected == q.Allowed }

// errSilent makes an outcome unknown: a connection that fails without policies shows nothing about them.
var errSilent = errors.New("no reply without policies either")

// Run runs all checks at once, and repeats them until all outcomes are right or patience is over, because policies take a
// while to be enforced. Then it repeats them a few times more; an outcome that is wrong once counts as wrong.
//
// A broken path stops the same connections as a policy. So Run first makes each denied connection without policies: if it
// fails, its outcome is unknown. Then it calls enforce, which adds the policies.
func Run(ctx context.Context, checks []Check, netnsOf NetnsOf, address Address, enforce func() error) ([]Outcome, error) {
	controls, err := control(ctx, checks, netnsOf, address)
	if err != nil {
		return nil, err
	}
	if err := enforce(); err != nil {
		return nil, err
	}
	outcomes, err := patiently(ctx, checks, func() ([]Outcome, error) { return pass(ctx, checks, netnsOf, address, 0) })
	if err != nil {
		return nil, err
	}
	for range confirmations {
		if err := wait.For(ctx, pause); err != nil {
			return nil, err
		}
		again, err := pass(ctx, checks, netnsOf, address, 0)
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

// control makes the denied connections before policies exist, and returns an error for each that fails. Allowed
// connections need no control: their success shows that their paths work.
func control(ctx context.Context, checks []Check, netnsOf NetnsOf, address Address) ([]error, error) {
	var controls []Check
	var of []int
	for i, q := range checks {
		if !q.Allowed {
			q.Allowed = true
			controls, of = append(controls, q), append(of, i)
		}
	}
	outcomes, err := patiently(ctx, controls, func() ([]Outcome, error) { return pass(ctx, controls, netnsOf, address, controlPort) })
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
func patiently(ctx context.Context, checks []Check, run func() ([]Outcome, error)) ([]Outcome, error) {
	for begin := time.Now(); ; {
		outcomes, err := run()
		if err != nil || allRight(checks, outcomes) || time.Since(begin) > patience {
			return outcomes, err
		}
		if err := wait.For(ctx, attempt); err != nil { // attempts that are not possible fail at once
			return nil, err
		}
	}
}

// pass runs all checks once, in parallel, each from a source port of its own, beginning with source; 0 is any port.
func pass(ctx context.Context, checks []Check, netnsOf NetnsOf, address Address, source uint16) ([]Outcome, error) {
	outcomes := make([]Outcome, len(checks))
	var wait sync.WaitGroup
	for i, q := range checks {
		c := connection{from: netnsOf(q.From), to: netip.AddrPortFrom(address(q.To), q.Port), protocol: q.Protocol, expected: q.Allowed}
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

// worse returns the worse outcome: a wrong one, else an unknown one.
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
