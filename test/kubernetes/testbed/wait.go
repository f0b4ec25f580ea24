package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// startTimeout is how long each step of a start may take on a busy machine.
const startTimeout = 3 * time.Minute

// await asks until the answer is yes. It gives up when its time is over, or when a component of one of the machines keeps
// ending; the error has what that component said last, or what the question was answered with.
func (b *Testbed) await(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not after %s", startTimeout))
	defer cancel()
	for {
		yes, err := ask()
		if yes {
			return nil
		}
		if failed := b.failing(); failed != nil {
			return fmt.Errorf("wait for %s: %w", what, failed)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, errors.Join(context.Cause(ctx), err))
		case <-time.After(150 * time.Millisecond):
		}
	}
}

// endings is how often a component may end until it is taken for broken.
const endings = 3

// failing finds a component that does not stay up.
func (b *Testbed) failing() error {
	for _, m := range b.Cluster.Machines() {
		states, err := machine.States(m.Name)
		if errors.Is(err, machine.ErrStopped) {
			return fmt.Errorf("%w; it said:\n%s", err, Tail(m.Name, machine.Console))
		}
		if err != nil {
			return err
		}
		for _, s := range states {
			if s.Ended >= endings {
				return fmt.Errorf("%s of %s ends again and again (%s); the end of its log:\n%s", s.Service, m.Name, s.Why, Tail(m.Name, s.Service))
			}
		}
	}
	return nil
}

// Tail is the end of a component's log.
func Tail(name, component string) string {
	content, err := os.ReadFile(plan.Log(name, component))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
