package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/convergence"
)

// timed makes a change while a client makes connections all the time, and gives the time from the change to the moment that the client waits
// for. A change that could not be made is followed by nothing: its error comes at once, and the client is ready for the next one.
func timed(ctx context.Context, client *convergence.Client, to netip.AddrPort, want int, change func() error) (time.Duration, error) {
	waiting, err := client.Begin(to, want, changeLimit)
	if err != nil {
		return 0, err
	}
	time.Sleep(warning)
	begin := time.Now()
	if err := change(); err != nil {
		return 0, errors.Join(fmt.Errorf("make the change: %w", err), waiting.Abandon())
	}
	at, err := waiting.End(ctx)
	return at.Sub(begin), err
}
