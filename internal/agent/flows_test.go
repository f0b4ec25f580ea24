package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// flowAgent is an agent with a pod and without a datapath behind it.
func flowAgent(told FlowsTold) *Agent {
	config := Defaults()
	config.NodeName, config.Flows = "a", told
	return &Agent{
		config: config, flows: newFlows(config, func() ([]flow.Loss, error) { return nil, nil }), datapath: &datapath.Datapath{},
		endpoints: map[string]agentapi.Endpoint{"bl1": {
			HostIfIndex: 7, Pod: agentapi.PodRef{Namespace: "shop", Name: "cart"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.2")},
		}},
	}
}

func quiet(opened time.Duration) datapath.Session {
	return datapath.Session{
		Source: netip.MustParseAddrPort("10.1.1.2:40000"), Destination: netip.MustParseAddrPort("10.1.2.2:53"), Protocol: 17,
		Opened: opened, Packets: [2]uint64{3, 2}, Bytes: [2]uint64{300, 200}, Egress: 5,
	}
}

// A session that has timed out is told of as closed, with names and totals, unless that has been told or was not asked for.
func TestSessionExpired(t *testing.T) {
	told := quiet(1)
	told.Told = true
	for _, c := range []struct {
		mode    FlowsTold
		session datapath.Session
		want    int
	}{
		{FlowsPolicy, quiet(1), 1}, {FlowsAll, quiet(1), 1}, {FlowsPolicy, told, 0},
	} {
		a := flowAgent(c.mode)
		a.nameLocals()
		a.flows.setPolicies(map[policy.Policy]cluster.Key{5: {Namespace: "shop", Name: "dns"}})
		a.sessionExpired(c.session, time.Time{})
		records := a.flows.log.Last(flow.Filter{}, 0)
		if len(records) != c.want || a.flows.events[flow.Closed].Load() != uint64(c.want) {
			t.Errorf("--flows=%s: %d events, expected %d", c.mode, len(records), c.want)
			continue
		}
		if c.want == 0 {
			continue
		}
		f := records[0].Flow()
		if f.Event != agentapi.FlowEventClosed || f.Source.Name != "cart" || f.EgressPolicy != "shop/dns" || f.Packets != 3 || f.AnswerBytes != 200 || f.Protocol != "UDP" {
			t.Errorf("flow %+v", f)
		}
	}
}

// Whoever reads events waits for nobody: with the agent's lock held, pods have the names of a moment ago.
func TestNameLocalsDoesNotWait(t *testing.T) {
	a := flowAgent(FlowsAll)
	a.nameLocals()
	a.mu.Lock()
	delete(a.endpoints, "bl1")
	a.nameLocals() // would never return
	a.mu.Unlock()
	a.sessionExpired(quiet(1), time.Time{})
	if f := a.flows.log.Last(flow.Filter{}, 0)[0].Flow(); f.Source.Name != "cart" {
		t.Errorf("flow %+v", f)
	}
}

// What this node has beside its Node's addresses is the node too: a pod that asks NodeLocal DNS talks with its own node.
func TestFlowsNameTheNodesAddresses(t *testing.T) {
	a := flowAgent(FlowsAll)
	a.current.services.HostPortAddresses = []netip.Addr{netip.MustParseAddr("169.254.20.10")}
	a.nameLocals()
	asking := quiet(1)
	asking.Destination = netip.MustParseAddrPort("169.254.20.10:53")
	a.sessionExpired(asking, time.Time{})
	if f := a.flows.log.Last(flow.Filter{}, 0)[0].Flow(); f.Destination.Kind != agentapi.FlowEndNode || f.Destination.Node != f.Source.Node {
		t.Errorf("flow %+v", f)
	}
}

// Who follows is told of what was lost since, and of nothing that was lost before.
func TestFollowLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := flowAgent(FlowsAll)
		dropped, opened := flow.Loss{Kind: flow.Dropped, Why: "full", Meaning: "nobody read", Events: 7}, flow.Loss{Kind: flow.Opened, Why: "full", Meaning: "nobody read"}
		a.flows.lost = func() ([]flow.Loss, error) { return []flow.Loss{dropped, opened}, nil }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []agentapi.FlowLoss
		done := make(chan error)
		go func() {
			done <- a.FollowFlows(ctx, agentapi.FlowFilter{New: true}, func(line agentapi.FlowLine) error {
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
			{Event: "dropped", Why: "full", Meaning: "nobody read", Events: 2},
			{Event: "dropped", Why: "full", Meaning: "nobody read", Events: 3}, {Event: "opened", Why: "full", Meaning: "nobody read", Events: 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lost (-want +got):\n%s", diff)
		}
		a.flows.lost = func() ([]flow.Loss, error) { return nil, errors.New("no such map") }
		if err := a.FollowFlows(t.Context(), agentapi.FlowFilter{}, nil); err == nil || err.Error() != "no such map" {
			t.Errorf("losses cannot be read: %v", err)
		}
	})
}

func TestFollowFlows(t *testing.T) {
	a := flowAgent(FlowsAll)
	a.sessionExpired(quiet(1), time.Time{})
	a.sessionExpired(quiet(2), time.Time{})
	enough := errors.New("enough")
	var got []agentapi.FlowLine
	err := a.FollowFlows(t.Context(), agentapi.FlowFilter{Last: 1}, func(line agentapi.FlowLine) error {
		got = append(got, line)
		if len(got) == 1 {
			a.sessionExpired(quiet(3), time.Time{}) // comes while somebody follows
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
		err := a.FollowFlows(over, c.which, func(agentapi.FlowLine) error { lines++; return nil })
		if !errors.Is(err, context.Canceled) || lines != c.lines {
			t.Errorf("%+v: %d lines of the past, expected %d: %v", c.which, lines, c.lines, err)
		}
	}
	a.flows.log.Close()
	if err := a.FollowFlows(context.Background(), agentapi.FlowFilter{}, func(agentapi.FlowLine) error { return nil }); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("after the agent has stopped: %v", err)
	}
	for _, f := range []agentapi.FlowFilter{{Verdict: "maybe"}, {Reason: "because"}} {
		if err := a.FollowFlows(t.Context(), f, nil); !agentapi.HasCode(err, agentapi.CodeInvalid) {
			t.Errorf("%+v: %v", f, err)
		}
		if _, err := a.Flows(t.Context(), f); !agentapi.HasCode(err, agentapi.CodeInvalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if err := flowAgent(FlowsOff).FollowFlows(t.Context(), agentapi.FlowFilter{}, nil); !agentapi.HasCode(err, agentapi.CodeInvalid) {
		t.Errorf("without flows: %v", err)
	}
}
