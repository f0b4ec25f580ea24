package connectivity

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/result"
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

// Right reports whether the outcome of a check is known and wanted.
func Right(c result.Connection) bool { return c.Unknown == "" && c.Connected == c.Allowed }

// silent makes an outcome unknown: a connection that fails without policies shows nothing about them.
const silent = "no reply without policies either"

// Run runs all checks at once, and repeats them until all outcomes are right or patience is over, because policies take a
// while to be enforced. Then it repeats them a few times more; an outcome that is wrong once counts as wrong.
//
// A broken path stops the same connections as a policy. So Run first makes each denied connection without policies: if it
// fails, its outcome is unknown. Then it calls enforce, which adds the policies.
func Run(ctx context.Context, checks []result.Connection, netns NetnsOf, address Address, enforce func() error) ([]result.Connection, error) {
	controls, err := control(ctx, checks, netns, address)
	if err != nil {
		return nil, err
	}
	if err := enforce(); err != nil {
		return nil, err
	}
	outcomes, err := patiently(ctx, func() ([]result.Connection, error) { return pass(ctx, checks, netns, address, 0) })
	if err != nil {
		return nil, err
	}
	for range confirmations {
		if err := wait.For(ctx, pause); err != nil {
			return nil, err
		}
		again, err := pass(ctx, checks, netns, address, 0)
		if err != nil {
			return nil, err
		}
		for i := range outcomes {
			outcomes[i] = worse(outcomes[i], again[i])
		}
	}
	for i := range outcomes {
		if Right(outcomes[i]) {
			outcomes[i].Unknown = controls[i]
		}
	}
	return outcomes, nil
}

// control makes the denied connections before policies exist, and returns for each that fails why its outcome is unknown.
// Allowed connections need no control: their success shows that their paths work.
func control(ctx context.Context, checks []result.Connection, netns NetnsOf, address Address) ([]string, error) {
	var controls []result.Connection
	var of []int
	for i, q := range checks {
		if !q.Allowed {
			q.Allowed = true
			controls, of = append(controls, q), append(of, i)
		}
	}
	outcomes, err := patiently(ctx, func() ([]result.Connection, error) { return pass(ctx, controls, netns, address, controlPort) })
	failed := make([]string, len(checks))
	for i, a := range outcomes {
		switch {
		case a.Unknown != "":
			failed[of[i]] = "without policies: " + a.Unknown
		case !a.Connected:
			failed[of[i]] = silent
		}
	}
	return failed, err
}

// patiently repeats checks until all outcomes are right or patience is over.
func patiently(ctx context.Context, run func() ([]result.Connection, error)) ([]result.Connection, error) {
	for begin := time.Now(); ; {
		outcomes, err := run()
		wrong := slices.ContainsFunc(outcomes, func(c result.Connection) bool { return !Right(c) })
		if err != nil || !wrong || time.Since(begin) > patience {
			return outcomes, err
		}
		if err := wait.For(ctx, attempt); err != nil { // attempts that are not possible fail at once
			return nil, err
		}
	}
}

// pass runs all checks once, in parallel, each from a source port of its own, beginning with source; 0 is any port.
func pass(ctx context.Context, checks []result.Connection, netns NetnsOf, address Address, source uint16) ([]result.Connection, error) {
	outcomes := slices.Clone(checks)
	var wait sync.WaitGroup
	for i := range outcomes {
		q := &outcomes[i]
		c := connection{
			from: netns(q.From), to: netip.AddrPortFrom(address(q.To), uint16(q.Port)), protocol: corev1.Protocol(q.Protocol), expected: q.Allowed,
		}
		if source != 0 {
			c.source = source + uint16(i)
		}
		wait.Go(func() {
			var err error
			if q.Connected, err = c.try(ctx); err != nil {
				q.Unknown = fmt.Sprintf("connect from %s to %s: %v", q.From, q.To, err)
			}
		})
	}
	wait.Wait()
	return outcomes, ctx.Err()
}

// worse returns the worse outcome: a wrong one, else an unknown one.
func worse(a, b result.Connection) result.Connection {
	rank := func(c result.Connection) int {
		switch {
		case Right(c):
			return 0
		case c.Unknown != "":
			return 1
		}
		return 2
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}
