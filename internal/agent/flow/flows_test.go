package flow

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// local is a node with a pod.
type local struct {
	mu        sync.Mutex
	pods      []flow.Local
	addresses []netip.Addr
}

func (l *local) get() ([]flow.Local, []netip.Addr, bool) {
	if !l.mu.TryLock() {
		return nil, nil, false
	}
	defer l.mu.Unlock()
	return l.pods, l.addresses, true
}

// newFlows makes the flows of a node with a pod and without a datapath.
func newFlows(mode Mode) (*local, *Flows) {
	config := Defaults()
	config.Flows = mode
	l := &local{pods: []flow.Local{{Pod: cluster.Key{Namespace: "shop", Name: "cart"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.2")}, Device: 7}}}
	return l, New(config, "a", 1000, &datapath.Datapath{}, func() ([]flow.Loss, error) { return nil, nil }, l.get, slog.New(slog.DiscardHandler))
}

func quiet(opened time.Duration) conntrack.Entry {
	return conntrack.Entry{
		Source: netip.MustParseAddrPort("10.1.1.2:40000"), Destination: netip.MustParseAddrPort("10.1.2.2:53"), Protocol: 17,
		Created: opened, Packets: [2]uint64{3, 2}, Bytes: [2]uint64{300, 200}, Egress: 5,
	}
}

// A connection that timed out is reported as closed, with names and totals, unless its end was reported or is not
// requested.
func TestConnectionExpired(t *testing.T) {
	notified := quiet(1)
	notified.Reported = true
	for _, c := range []struct {
		mode    Mode
		session conntrack.Entry
		want    int
	}{
		{ModePolicy, quiet(1), 1}, {ModeAll, quiet(1), 1}, {ModePolicy, notified, 0},
	} {
		_, f := newFlows(c.mode)
		f.nameLocals()
		f.UpdatePolicies(map[policy.Policy]cluster.Key{5: {Namespace: "shop", Name: "dns"}})
		f.connectionExpired(c.session, time.Time{})
		records := f.buffer.Last(flow.Filter{}, 0)
		if len(records) != c.want || f.events[flow.KindClosed].Load() != uint64(c.want) {
			t.Errorf("--flows=%s: %d events, expected %d", c.mode, len(records), c.want)
			continue
		}
		if c.want == 0 {
			continue
		}
		got := records[0].Flow()
		if got.Event != agentapi.FlowEventClosed || got.Source.Name != "cart" || got.EgressPolicy != "shop/dns" || got.Packets != 3 || got.ReplyBytes != 200 || got.Protocol != "UDP" {
			t.Errorf("flow %+v", got)
		}
	}
}

// Reading events never blocks: while the agent's lock is held, pods have their last known names.
func TestNameLocalsDoesNotWait(t *testing.T) {
	l, f := newFlows(ModeAll)
	f.nameLocals()
	l.mu.Lock()
	l.pods = nil
	f.nameLocals() // would never return
	l.mu.Unlock()
	f.connectionExpired(quiet(1), time.Time{})
	if got := f.buffer.Last(flow.Filter{}, 0)[0].Flow(); got.Source.Name != "cart" {
		t.Errorf("flow %+v", got)
	}
}

// An address of this node that its Node does not have belongs to the node, too: a pod that uses NodeLocal DNS talks
// to its own node.
func TestFlowsNameTheNodesAddresses(t *testing.T) {
	l, f := newFlows(ModeAll)
	l.addresses = []netip.Addr{netip.MustParseAddr("169.254.20.10")}
	f.nameLocals()
	asking := quiet(1)
	asking.Destination = netip.MustParseAddrPort("169.254.20.10:53")
	f.connectionExpired(asking, time.Time{})
	if got := f.buffer.Last(flow.Filter{}, 0)[0].Flow(); got.Destination.Kind != agentapi.FlowEndNode || got.Destination.Node != got.Source.Node {
		t.Errorf("flow %+v", got)
	}
}

// A follower gets the losses since its start, and not earlier ones.
func TestFollowLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := newFlows(ModeAll)
		dropped, opened := flow.Loss{Kind: flow.KindDropped, Reason: "full", Meaning: "not read in time", Events: 7}, flow.Loss{Kind: flow.KindNew, Reason: "full", Meaning: "not read in time"}
		f.lost = func() ([]flow.Loss, error) { return []flow.Loss{dropped, opened}, nil }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []agentapi.FlowLoss
		done := make(chan error)
		go func() {
			done <- f.FollowFlows(ctx, agentapi.FlowFilter{New: true}, func(line agentapi.FlowLine) error {
				if line.Lost == nil {
					t.Errorf("line %+v", line)
					return nil
				}
				got = append(got, *line.Lost)
				return nil
			})
		}()
		time.Sleep(10 * time.Second)
		dropped.Events += 2
		time.Sleep(10 * time.Second)
		dropped.Events += 3
		opened.Events++
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the end: %v", err)
		}
		want := []agentapi.FlowLoss{
			{Event: "dropped", Reason: "full", Meaning: "not read in time", Events: 2},
			{Event: "dropped", Reason: "full", Meaning: "not read in time", Events: 3}, {Event: "new", Reason: "full", Meaning: "not read in time", Events: 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lost (-want +got):\n%s", diff)
		}
		f.lost = func() ([]flow.Loss, error) { return nil, errors.New("no such map") }
		if err := f.FollowFlows(t.Context(), agentapi.FlowFilter{}, nil); err == nil || err.Error() != "no such map" {
			t.Errorf("losses cannot be read: %v", err)
		}
	})
}

func TestFollowFlows(t *testing.T) {
	_, f := newFlows(ModeAll)
	f.connectionExpired(quiet(1), time.Time{})
	f.connectionExpired(quiet(2), time.Time{})
	enough := errors.New("enough")
	var got []agentapi.FlowLine
	err := f.FollowFlows(t.Context(), agentapi.FlowFilter{Last: 1}, func(line agentapi.FlowLine) error {
		got = append(got, line)
		if len(got) == 1 {
			f.connectionExpired(quiet(3), time.Time{}) // comes while a request follows
			return nil
		}
		return enough
	})
	if !errors.Is(err, enough) || len(got) != 2 || got[0].Flow == nil || got[1].Flow == nil {
		t.Errorf("%v: lines %+v", err, got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		which agentapi.FlowFilter
		lines int
	}{{agentapi.FlowFilter{}, 3}, {agentapi.FlowFilter{New: true}, 0}} {
		lines := 0
		err := f.FollowFlows(over, c.which, func(agentapi.FlowLine) error { lines++; return nil })
		if !errors.Is(err, context.Canceled) || lines != c.lines {
			t.Errorf("%+v: %d lines of the past, expected %d: %v", c.which, lines, c.lines, err)
		}
	}
	f.buffer.Close()
	if err := f.FollowFlows(context.Background(), agentapi.FlowFilter{}, func(agentapi.FlowLine) error { return nil }); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("after the agent has stopped: %v", err)
	}
	for _, which := range []agentapi.FlowFilter{{Verdict: "maybe"}, {Reason: "because"}} {
		if err := f.FollowFlows(t.Context(), which, nil); !agentapi.HasCode(err, agentapi.CodeInvalid) {
			t.Errorf("%+v: %v", which, err)
		}
		if _, err := f.Flows(t.Context(), which); !agentapi.HasCode(err, agentapi.CodeInvalid) {
			t.Errorf("%+v: %v", which, err)
		}
	}
	_, off := newFlows(ModeOff)
	if err := off.FollowFlows(t.Context(), agentapi.FlowFilter{}, nil); !agentapi.HasCode(err, agentapi.CodeInvalid) {
		t.Errorf("without flows: %v", err)
	}
}
