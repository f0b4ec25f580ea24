package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/wait"
	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// startTimeout is the timeout of each step of a start.
const startTimeout = 3 * time.Minute

// await waits until the condition holds. It fails after startTimeout, with the condition's last error, or when a
// component of a machine keeps failing, with the end of its log.
func (b *Testbed) await(ctx context.Context, what string, condition func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not after %s", startTimeout))
	defer cancel()
	for {
		holds, err := condition()
		if holds {
			return nil
		}
		if failed := b.failing(); failed != nil {
			return fmt.Errorf("wait for %s: %w", what, failed)
		}
		if wait.For(ctx, 150*time.Millisecond) != nil {
			return fmt.Errorf("wait for %s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}

// endings is the number of ends after which a component counts as failing.
const endings = 3

// failing returns an error for a component that keeps ending.
func (b *Testbed) failing() error {
	for _, m := range b.Cluster.Machines() {
		states, err := machine.States(m.Name)
		if errors.Is(err, machine.ErrStopped) {
			return fmt.Errorf("%w; its output:\n%s", err, Tail(m.Name, machine.Console))
		}
		if err != nil {
			return err
		}
		for _, s := range states {
			if s.Ended >= endings {
				return fmt.Errorf("%s of %s keeps failing (exit status %d); the end of its log:\n%s", s.Service, m.Name, s.Status, Tail(m.Name, s.Service))
			}
		}
	}
	return nil
}

// Tail returns the end of a component's log.
func Tail(name, component string) string {
	content, err := os.ReadFile(plan.Log(name, component))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
