// Package bandwidth applies the bandwidth limits of pods: what a pod sends is limited by the datapath, what it receives by the
// qdisc of its host end. See docs/decisions/48-bandwidth.md.
package bandwidth

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/qdisc"
)

// Limits are those of the pods of one node. The caller holds the agent's lock.
type Limits struct {
	table fwd.Limits
	log   *slog.Logger
	// pods is the number of limited pods.
	pods int
	// held says that uplinks hold packets until their departure time; notHeld is why one does not.
	held    bool
	notHeld error
	// released says that no uplink has a qdisc of an agent; limited is when a pod's sending was.
	released bool
	limited  time.Time
}

// releaseAfter is how long uplinks keep their qdisc without pods whose sending is limited. Replacing it loses packets of all pods, and
// whoever may change a pod's annotations decides how often limits come and go.
const releaseAfter = 10 * time.Minute

// New returns Limits that know of no pod yet.
func New(table fwd.Limits, log *slog.Logger) *Limits {
	return &Limits{table: table, log: log}
}

// bytes converts bit/s to bytes/s; the result is not 0 for a limit.
func bytes(bits uint64) uint64 { return (bits + 7) / 8 }

// Apply limits a pod, or ends its limits. It is called before the host end of a new pod is set up, if the pod has limits, and after each
// change.
func (l *Limits) Apply(p agentapi.Endpoint) error {
	if err := limitIngress(p); err != nil {
		return err
	}
	rate := bytes(p.Bandwidth.Egress)
	if err := device.LimitPodEnd(p.HostIfIndex, p.Netns, rate); err != nil {
		l.log.Warn("the queue at the pod's end is not that of its bandwidth limit; what is sent beyond the limit is dropped at the host end", "pod", p.PodName(), "reason", err)
	}
	if rate == 0 {
		return l.table.Delete(p.HostIfIndex)
	}
	return l.table.Set(p.HostIfIndex, l.limit(p))
}

func limitIngress(p agentapi.Endpoint) error {
	if err := qdisc.Limit(p.HostIfIndex, bytes(p.Bandwidth.Ingress)); err != nil {
		return fmt.Errorf("limit what pod %s receives: %w", p.PodName(), err)
	}
	return nil
}

// limit allows a burst of the pod's end, and what its timer may be late.
func (l *Limits) limit(p agentapi.Endpoint) fwd.Limit {
	rate := bytes(p.Bandwidth.Egress)
	return fwd.Limit{Rate: rate, Burst: qdisc.Burst(rate) + timerLate, Departs: l.held}
}

const timerLate = 10 * time.Millisecond

// Recover gives the limits of a host end whose endpoint was lost.
func (l *Limits) Recover(hostIndex int) (limits agentapi.Bandwidth, err error) {
	all, err := l.table.All()
	if err != nil {
		return limits, err
	}
	ingress, err := qdisc.Limited(hostIndex)
	return agentapi.Bandwidth{Egress: 8 * all[hostIndex].Rate, Ingress: 8 * ingress}, err
}

// Remove forgets a host end, which is about to be deleted.
func (l *Limits) Remove(hostIndex int) error { return l.table.Delete(hostIndex) }

// Sync makes the limits those of the endpoints, and looks after the qdiscs of uplinks: they hold packets as long as a pod's sending is
// limited. A failure concerns the pod or the uplink that it names, and the others go on.
func (l *Limits) Sync(endpoints []agentapi.Endpoint, uplinks []netdev.Uplink) error {
	var errs []error
	l.pods = 0
	egress := map[int]agentapi.Endpoint{}
	for _, p := range endpoints {
		if p.Bandwidth != (agentapi.Bandwidth{}) {
			l.pods++
		}
		if p.Bandwidth.Egress > 0 {
			egress[p.HostIfIndex] = p
		}
		if p.Bandwidth.Ingress > 0 {
			errs = append(errs, limitIngress(p))
		}
	}
	errs = append(errs, l.syncUplinks(uplinks, len(egress) > 0, time.Now()))
	want := map[int]fwd.Limit{}
	for index, p := range egress {
		want[index] = l.limit(p)
	}
	return errors.Join(append(errs, l.table.Sync(want))...)
}

// syncUplinks has the uplinks hold packets, or not any more.
func (l *Limits) syncUplinks(uplinks []netdev.Uplink, limited bool, now time.Time) error {
	var errs []error
	before := l.notHeld
	l.notHeld, l.held = nil, false
	if !limited {
		if l.released || now.Sub(l.limited) < releaseAfter {
			return nil
		}
		for _, u := range uplinks {
			errs = append(errs, qdisc.ReleaseDepartures(u.Index))
		}
		l.released = errors.Join(errs...) == nil
		return errors.Join(errs...)
	}
	l.released, l.limited = false, now
	for _, u := range uplinks {
		if err := qdisc.HoldDepartures(u.Index); err != nil {
			l.notHeld = fmt.Errorf("uplink %s: %w", u.Name, err)
			if !errors.Is(err, qdisc.ErrNotHeld) {
				errs = append(errs, l.notHeld)
			}
		}
	}
	l.held = l.notHeld == nil && len(uplinks) > 0
	if l.notHeld != nil && (before == nil || before.Error() != l.notHeld.Error()) {
		l.log.Info("uplinks do not hold packets of pods with bandwidth limits", "reason", l.notHeld)
	}
	return errors.Join(errs...)
}

// Choice says how what pods send is limited.
func (l *Limits) Choice() agentapi.Choice {
	c := agentapi.Choice{Name: "bandwidth", Requested: "auto", Selected: "unlimited", Reason: "no pod has a limit"}
	switch {
	case l.pods == 0:
	case l.held:
		c.Selected, c.Reason = "fq", fmt.Sprintf("%d pods have limits; uplinks hold their packets until they may depart", l.pods)
	default:
		c.Selected, c.Reason = "tbf", fmt.Sprintf("%d pods have limits; the qdisc of their own end delays what they send, and the datapath drops what comes faster", l.pods)
		if l.notHeld != nil {
			c.Reason += ": " + l.notHeld.Error()
		}
	}
	return c
}
