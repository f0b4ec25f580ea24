package convergence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/wait"
)

const (
	// ChangeLimit is the timeout after a change.
	ChangeLimit = 2 * time.Minute
	// lead is the time for which the client makes connections before a change.
	lead = 20 * time.Millisecond
)

// Time makes a change while a client makes connections. It returns the time from the change to the moment for which the
// client waits. If the change fails, Time returns its error at once, and the client is ready for the next one.
func Time(ctx context.Context, client *Client, to netip.AddrPort, want int, change func() error) (time.Duration, error) {
	waiting, err := client.Begin(to, want, ChangeLimit)
	if err != nil {
		return 0, err
	}
	time.Sleep(lead)
	begin := time.Now()
	if err := change(); err != nil {
		return 0, errors.Join(fmt.Errorf("make the change: %w", err), waiting.Abandon())
	}
	at, err := waiting.End(ctx)
	return at.Sub(begin), err
}

// Repeat makes changes in turn until each was made most times or the time is over, with a pause after each. It returns
// the convergence times of each in milliseconds, and, where one ended it early, its error.
func Repeat(ctx context.Context, most int, within, pause time.Duration, changes ...func() (time.Duration, error)) (milliseconds [][]float64, errs []error) {
	milliseconds, errs = slices.Repeat([][]float64{{}}, len(changes)), make([]error, len(changes))
	for began := time.Now(); len(milliseconds[len(changes)-1]) < most && time.Since(began) < within; {
		for i, change := range changes {
			took, err := change()
			if err == nil {
				milliseconds[i] = append(milliseconds[i], float64(took)/float64(time.Millisecond))
				err = wait.For(ctx, pause)
			}
			if err != nil {
				errs[i] = err
				return milliseconds, errs
			}
		}
	}
	return milliseconds, errs
}
