package flow

import (
	"context"
	"errors"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	dpflow "github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/flow"
)

// Flows lists the flows in the buffer.
func (f *Flows) Flows(_ context.Context, which agentapi.FlowFilter) (*agentapi.FlowList, error) {
	filter, err := newFlowFilter(which)
	if err != nil {
		return nil, err
	}
	list := &agentapi.FlowList{Mode: string(f.config.Flows), Flows: []agentapi.Flow{}}
	for _, r := range f.buffer.Last(filter, which.Last) {
		list.Flows = append(list.Flows, r.Flow())
	}
	list.Buffered, list.Oldest = f.buffer.Buffered()
	losses, err := f.losses()
	if err != nil {
		return nil, err
	}
	list.Losses = lostSince(nil, losses)
	return list, nil
}

// losses counts unreported events by kind and cause.
func (f *Flows) losses() ([]flow.Loss, error) {
	losses, err := f.lost()
	return append(losses, f.open.losses()), err
}

// lostSince is the difference of two results of losses; without an earlier one it is all.
func lostSince(before, now []flow.Loss) (all []agentapi.FlowLoss) {
	for i, l := range now {
		if i < len(before) {
			l.Events -= min(l.Events, before[i].Events) // both list all kinds and causes in the same order
		}
		if l.Events > 0 {
			all = append(all, agentapi.FlowLoss{Event: l.Kind.String(), Reason: l.Reason, Meaning: l.Meaning, Events: l.Events})
		}
	}
	return all
}

// FollowFlows calls each for every flow as it comes.
func (f *Flows) FollowFlows(ctx context.Context, which agentapi.FlowFilter, each func(agentapi.FlowLine) error) error {
	filter, err := newFlowFilter(which)
	if err != nil {
		return err
	}
	if f.config.Flows == ModeOff {
		return agentapi.Errorf(agentapi.CodeInvalid, "this agent reports no flows (--flows=%s)", ModeOff)
	}
	past := which.Last
	if which.New {
		past = flow.None
	}
	before, err := f.losses()
	if err != nil {
		return err
	}
	read := time.Now()
	records, follower := f.buffer.Follow(filter, past)
	defer follower.Close()
	for {
		for _, r := range records {
			line := r.Flow()
			if err := each(agentapi.FlowLine{Flow: &line}); err != nil {
				return err
			}
		}
		if time.Since(read) >= followedLosses {
			if before, err = f.followLosses(before, each); err != nil {
				return err
			}
			read = time.Now()
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

// followedLosses is the interval at which a following request reads losses.
const followedLosses = time.Second

// nextFor waits for records for a time; none is no error.
func nextFor(ctx context.Context, follower *flow.Follower, wait time.Duration) (records []flow.Record, missed uint64, err error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	records, missed, err = follower.Next(waiting)
	if waiting.Err() != nil && ctx.Err() == nil && errors.Is(err, waiting.Err()) {
		return nil, 0, nil
	}
	return records, missed, err
}

// followLosses reports the losses since before, and returns the current ones.
func (f *Flows) followLosses(before []flow.Loss, each func(agentapi.FlowLine) error) ([]flow.Loss, error) {
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
	filter, err := flow.NewFilter(which, dpflow.DropReasons())
	if err != nil {
		return filter, agentapi.Errorf(agentapi.CodeInvalid, agentapi.InFlowFilter+"%v", err)
	}
	return filter, nil
}

// Status is the active mode.
func (f *Flows) Status() agentapi.Choice {
	c := agentapi.Choice{Name: "flows", Requested: string(f.config.Flows), Selected: string(f.config.Flows)}
	c.Reason = map[Mode]string{
		ModePolicy: "`beeline flows` shows connections of pods that NetworkPolicies select, and drops",
		ModeAll:    "`beeline flows` shows connections of all pods, and drops; the datapath tracks them for it",
		ModeDrops:  "`beeline flows` shows drops",
		ModeOff:    "`beeline flows` shows nothing",
	}[f.config.Flows]
	return c
}
