package reconcile

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/beeline-cni/beeline/internal/device/conflict"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// defences answer the probes of other hosts for addresses of IPPools that pods of this node have, on some devices. The zero value
// answers none.
type defences struct {
	running map[int]*defence
	all     sync.WaitGroup
}

// defence is that of one device. done is closed when it has ended.
type defence struct {
	mac  string
	stop context.CancelFunc
	done chan struct{}
}

// set starts and ends defences, so that exactly these devices have one. One that has failed starts again.
func (d *defences) set(devices []netdev.Uplink, log *slog.Logger) {
	wanted := map[int]netdev.Uplink{}
	for _, u := range devices {
		if len(u.MAC) == 6 {
			wanted[u.Index] = u
		}
	}
	for index, running := range d.running {
		if u, wants := wanted[index]; wants && running.mac == u.MAC.String() && !running.hasEnded() {
			delete(wanted, index)
			continue
		}
		running.stop()
		delete(d.running, index)
	}
	for index, u := range wanted {
		if d.running == nil {
			d.running = map[int]*defence{}
		}
		ctx, stop := context.WithCancel(context.Background())
		next := &defence{u.MAC.String(), stop, make(chan struct{})}
		d.running[index] = next
		d.all.Go(func() {
			defer close(next.done)
			has := func(a netip.Addr) (bool, error) { return neigh.HasProxy(u.Index, a) }
			if err := conflict.Defend(ctx, conflict.Device{Index: u.Index, MAC: u.MAC}, has); err != nil {
				log.Warn("other hosts may take addresses of pods", "uplink", u.Name, "error", err)
			}
		})
	}
}

// close ends all.
func (d *defences) close() {
	d.set(nil, nil)
	d.all.Wait()
}

func (d *defence) hasEnded() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}
