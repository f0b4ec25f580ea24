package samenode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
	"github.com/beeline-cni/beeline/internal/device/sock"
)

// Datapath is what SameNode uses of the datapath; samenode.SameNode is one.
type Datapath interface {
	Attach() error
	Attached() (bool, error)
	Sync(want map[netip.Addr]samenode.Pod) (changed int, err error)
	Sweep() (samenode.Swept, error)
	Counts() (samenode.Counts, error)
	DestroyRevoked(netns []string) (int, error)
	CannotDestroy() error
}

// interval is that of passes: a socket that uses packets becomes an ordinary one after two of them, and a revoked one is
// destroyed after one. pause is the time between other updates of pods.
const (
	interval = 2 * time.Second
	pause    = 100 * time.Millisecond
)

// Options are what SameNode depends on.
type Options struct {
	Config Config
	// Datapath is nil if the kernel cannot do it; Impossible is why.
	Datapath   Datapath
	Impossible error
	// Endpoints are those of the node; it returns false if they are in use now.
	Endpoints func() ([]agentapi.Endpoint, bool)
	// Ready reports whether the policy tables hold the cluster's policies.
	Ready func() bool
	// Cookie is that of the network namespace at a path.
	Cookie func(netns string) (uint64, error)
	Beat   *loop.Beat
	Log    *slog.Logger
}

// SameNode makes sockets meet.
type SameNode struct {
	Options
	wake loop.Signal

	mu       sync.Mutex
	snapshot *cluster.Snapshot

	// The fields below belong to Run.
	attached bool
	cookies  map[string]cookie // by host device
	netns    []string
	revoked  uint64 // the count of the last destroy

	outcomeMu sync.Mutex
	outcome   Outcome
}

// cookie is that of an endpoint's network namespace.
type cookie struct {
	index  int // of the host device: another endpoint may have its name later
	cookie uint64
}

// Outcome is the result of the last pass.
type Outcome struct {
	// Pods have opted in.
	Pods int
	// Swept counts the sockets, Counts what happened.
	samenode.Swept
	Counts samenode.Counts
	// Destroyed counts revoked sockets since the agent started.
	Destroyed int
	// Failure is what failed.
	Failure error
}

// New makes a SameNode that has not made a pass.
func New(o Options) *SameNode {
	if o.Cookie == nil {
		o.Cookie = sock.NetnsCookieAt
	}
	return &SameNode{Options: o, wake: loop.NewSignal(), cookies: map[string]cookie{}}
}

// Update hands over a snapshot. It does not block.
func (s *SameNode) Update(snapshot *cluster.Snapshot) {
	s.mu.Lock()
	s.snapshot = snapshot
	s.mu.Unlock()
	s.Wake()
}

// Wake requests an update: endpoints have changed. It does not block.
func (s *SameNode) Wake() {
	if s.Datapath != nil {
		s.wake.Set()
	}
}

// Run makes passes until ctx ends. Sockets keep meeting after it.
func (s *SameNode) Run(ctx context.Context) error {
	l := loop.Loop{
		Beat: s.Beat, Wake: s.wake, Work: func() { s.update(s.pods) }, Pause: func() time.Duration { return pause },
		Ticks: []*loop.Tick{{Every: interval, Do: func(time.Time) { s.update(s.pass) }}},
	}
	return l.Run(ctx)
}

// Status is the result of the last pass.
func (s *SameNode) Status() Outcome {
	s.outcomeMu.Lock()
	defer s.outcomeMu.Unlock()
	return s.outcome
}

// Pass makes the datapath hold the pods that opted in, sweeps, and destroys revoked sockets.
func (s *SameNode) Pass() { s.update(s.pass) }

// update does a part of the work, and records what failed.
func (s *SameNode) update(work func(o *Outcome) error) {
	o := s.Status()
	before := o.Failure
	o.Failure = work(&o)
	if o.Failure != nil && (before == nil || before.Error() != o.Failure.Error()) {
		s.Log.Error("same-node sockets", "error", o.Failure)
	}
	s.outcomeMu.Lock()
	defer s.outcomeMu.Unlock()
	s.outcome = o
}

func (s *SameNode) pass(o *Outcome) error {
	err := s.pods(o)
	if !s.attached {
		return err
	}
	var sweepErr, countErr error
	o.Swept, sweepErr = s.Datapath.Sweep()
	counts, countErr := s.Datapath.Counts()
	if countErr != nil {
		return errors.Join(err, sweepErr, countErr)
	}
	o.Counts = counts
	return errors.Join(err, sweepErr, s.destroy(o))
}

// pods makes the datapath hold the pods that opted in. It attaches the programs when policies are known: earlier ones
// would allow what the policies deny.
func (s *SameNode) pods(o *Outcome) error {
	s.mu.Lock()
	snapshot := s.snapshot
	s.mu.Unlock()
	if snapshot == nil || snapshot.Unknown.Has(cluster.KindPod) || !s.Ready() {
		return nil // a later update
	}
	endpoints, ok := s.Endpoints()
	if !ok {
		s.wake.Set()
		return nil
	}
	if err := s.attach(); err != nil {
		return err
	}
	return s.sync(optedIn(endpoints, snapshot), o)
}

// attach attaches the programs, and again if they are gone: the kernel does not notify of it.
func (s *SameNode) attach() error {
	if s.attached {
		on, err := s.Datapath.Attached()
		if err != nil || on {
			return err
		}
		s.Log.Warn("programs of same-node sockets are gone and are attached again")
	}
	if err := s.Datapath.Attach(); err != nil {
		return err
	}
	s.attached = true
	return nil
}

// sync writes the pods. One whose network namespace cannot be read uses packets.
func (s *SameNode) sync(pods []agentapi.Endpoint, o *Outcome) error {
	var errs []error
	cookies, ids, byNamespace := map[string]cookie{}, map[string]uint64{}, map[string][]agentapi.Endpoint{}
	o.Pods, s.netns = 0, nil
	for _, e := range pods {
		c, known := s.cookies[e.HostDevice]
		if !known || c.index != e.HostIfIndex {
			id, err := s.Cookie(e.Netns)
			if err != nil {
				errs = append(errs, fmt.Errorf("pod %s: %w", e.PodName(), err))
				continue
			}
			c = cookie{index: e.HostIfIndex, cookie: id}
		}
		cookies[e.HostDevice], ids[e.HostDevice] = c, c.cookie
		byNamespace[e.Pod.Namespace] = append(byNamespace[e.Pod.Namespace], e)
		o.Pods++
		s.netns = append(s.netns, e.Netns)
	}
	s.cookies = cookies
	_, err := s.Datapath.Sync(divide(byNamespace, ids, s.Config.SameNodeMax))
	return errors.Join(append(errs, err)...)
}

// destroy destroys revoked sockets, after messages were denied.
func (s *SameNode) destroy(o *Outcome) error {
	if s.Datapath.CannotDestroy() != nil || o.Counts.Revoked() == s.revoked {
		return nil
	}
	n, err := s.Datapath.DestroyRevoked(s.netns)
	o.Destroyed += n
	if err == nil {
		s.revoked = o.Counts.Revoked()
	}
	return err
}

// Choice describes the mode for `beeline status`.
func (s *SameNode) Choice() agentapi.Choice {
	c := agentapi.Choice{Name: "same-node", Requested: string(s.Config.SameNode), Selected: string(s.Config.SameNode), Reason: "as requested"}
	if s.Config.SameNode == ModeOff {
		return c
	}
	if s.Datapath == nil {
		c.Selected, c.Reason = string(ModeOff), fmt.Sprintf("not possible: %v", s.Impossible)
		return c
	}
	o := s.Status()
	c.Reason = fmt.Sprintf("experimental; %d pods opted in, %d of their %d sockets meet", o.Pods, o.Meeting, o.Sockets)
	if s.Datapath.CannotDestroy() != nil {
		c.Reason += "; revoked ones are not destroyed (Linux 6.5), and their packets are dropped"
	}
	return c
}

// Problems are those of the last pass.
func (s *SameNode) Problems() []string {
	if s.Config.SameNode != ModeOff && s.Datapath == nil {
		return []string{fmt.Sprintf("--same-node=%s: this node cannot: %v; pods exchange packets", s.Config.SameNode, s.Impossible)}
	}
	if err := s.Status().Failure; err != nil {
		return []string{fmt.Sprintf("same-node sockets: %v; pods that are concerned exchange packets", err)}
	}
	return nil
}
