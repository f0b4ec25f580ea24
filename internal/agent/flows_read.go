package agent

import (
	"context"
	"errors"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/flow"
)

// Flows lists what is kept of flows.
func (a *Agent) Flows(_ context.Context, which agentapi.FlowFilter) (*agentapi.FlowList, error) {
	filter, err := newFlowFilter(which)
	if err != nil {
		return nil, err
	}
	list := &agentapi.FlowList{Telling: string(a.config.Flows), Flows: []agentapi.Flow{}}
	for _, r := range a.flows.log.Last(filter, which.Last) {
		list.Flows = append(list.Flows, r.Flow())
	}
	list.Kept, list.Oldest = a.flows.log.Kept()
	losses, err := a.flows.losses()
	if err != nil {
		return nil, err
	}
	list.Losses = lostSince(nil, losses)
	return list, nil
}

// losses counts the events that were not told and never will be, by kind and cause.
func (f *flows) losses() ([]flow.Loss, error) {
	losses, err := f.lost()
	return append(losses, f.open.losses()), err
}

// lostSince gives what was lost between two answers of losses; all, without an earlier one.
func lostSince(before, now []flow.Loss) (all []agentapi.FlowLoss) {
	for i, l := range now {
		if i < len(before) {
			l.Events -= min(l.Events, before[i].Events) // both have all kinds and causes in one order
		}
		if l.Events > 0 {
			all = append(all, agentapi.FlowLoss{Event: l.Kind.String(), Why: l.Why, Meaning: l.Meaning, Events: l.Events})
		}
	}
	return all
}

// FollowFlows tells of flows as they come.
func (a *Agent) FollowFlows(ctx context.Context, which agentapi.FlowFilter, each func(agentapi.FlowLine) error) error {
	filter, err := newFlowFilter(which)
	if err != nil {
		return err
	}
	if a.config.Flows == FlowsOff {
		return agentapi.Errorf(agentapi.CodeInvalid, "this agent tells of no flows (--flows=%s)", FlowsOff)
	}
	past := which.Last
	if which.New {
		past = flow.None
	}
	before, err := a.flows.losses()
	if err != nil {
		return err
	}
	asked := time.Now()
	records, follower := a.flows.log.Follow(filter, past)
	defer follower.Close()
	for {
		for _, r := range records {
			f := r.Flow()
			if err := each(agentapi.FlowLine{Flow: &f}); err != nil {
				return err
			}
		}
		if time.Since(asked) >= followedLosses {
			if before, err = a.flows.followLosses(before, each); err != nil {
				return err
			}
			asked = time.Now()
		}
		var missed uint64
		if records, missed, err = nextFor(ctx, follower, followedLosses); err != nil {
			return err
		}
		if missed > 0 {
			if err := each(agentapi.FlowLine{Missed: missed}); err != nil {
				return err
			}
		}
	}
}

// followedLosses is how often those who follow are told of losses.
const followedLosses = time.Second

// nextFor waits for records for so long; that there are none by then is no error.
func nextFor(ctx context.Context, follower *flow.Follower, wait time.Duration) (records []flow.Record, missed uint64, err error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	records, missed, err = follower.Next(waiting)
	if waiting.Err() != nil && ctx.Err() == nil && errors.Is(err, waiting.Err()) {
		return nil, 0, nil
	}
	return records, missed, err
}

// followLosses tells of what was lost since before, and gives what there is now.
func (f *flows) followLosses(before []flow.Loss, each func(agentapi.FlowLine) error) ([]flow.Loss, error) {
	now, err := f.losses()
	if err != nil {
		return nil, err
	}
	for _, l := range lostSince(before, now) {
		if err := each(agentapi.FlowLine{Lost: &l}); err != nil {
			return nil, err
		}
	}
	return now, nil
}

func newFlowFilter(which agentapi.FlowFilter) (flow.Filter, error) {
	filter, err := flow.NewFilter(which, datapath.DropReasons())
	if err != nil {
		return filter, agentapi.Errorf(agentapi.CodeInvalid, "filter: %v", err)
	}
	return filter, nil
}

func (a *Agent) flowsChoice() agentapi.Choice {
	c := agentapi.Choice{Name: "flows", Asked: string(a.config.Flows), Chosen: string(a.config.Flows)}
	c.Why = map[FlowsTold]string{
		FlowsPolicy: "`beeline flows` tells of pods that NetworkPolicies select, and of drops",
		FlowsAll:    "`beeline flows` tells of all pods, whose connections are remembered for it, and of drops",
		FlowsDrops:  "`beeline flows` tells of drops",
		FlowsOff:    "`beeline flows` tells of nothing",
	}[a.config.Flows]
	return c
}
