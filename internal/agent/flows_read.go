package agent

import (
	"context"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/flow"
)

// Flows lists what is kept of flows.
func (a *Agent) Flows(_ context.Context, which api.FlowFilter) (*api.FlowList, error) {
	filter, err := newFlowFilter(which)
	if err != nil {
		return nil, err
	}
	list := &api.FlowList{Telling: string(a.config.Flows), Flows: []api.Flow{}}
	for _, r := range a.flows.log.Last(filter, which.Last) {
		list.Flows = append(list.Flows, r.Flow())
	}
	list.Kept, list.Oldest = a.flows.log.Kept()
	losses, err := a.flowLosses()
	if err != nil {
		return nil, err
	}
	for _, l := range losses {
		if l.Events > 0 {
			list.Losses = append(list.Losses, api.FlowLoss{Event: l.Kind.String(), Why: l.Why, Meaning: l.Meaning, Events: l.Events})
		}
	}
	return list, nil
}

// flowLosses counts the events that were not told and never will be.
func (a *Agent) flowLosses() ([]flow.Loss, error) {
	losses, err := a.datapath.Flows.Losses()
	return append(losses, a.flows.open.losses()), err
}

// FollowFlows tells of flows as they come.
func (a *Agent) FollowFlows(ctx context.Context, which api.FlowFilter, each func(api.FlowLine) error) error {
	filter, err := newFlowFilter(which)
	if err != nil {
		return err
	}
	if a.config.Flows == FlowsOff {
		return api.Errorf(api.CodeInvalid, "this agent tells of no flows (--flows=%s)", FlowsOff)
	}
	past := which.Last
	if which.New {
		past = flow.None
	}
	records, follower := a.flows.log.Follow(filter, past)
	defer follower.Close()
	for {
		for _, r := range records {
			f := r.Flow()
			if err := each(api.FlowLine{Flow: &f}); err != nil {
				return err
			}
		}
		var missed uint64
		if records, missed, err = follower.Next(ctx); err != nil {
			return err
		}
		if missed > 0 {
			if err := each(api.FlowLine{Missed: missed}); err != nil {
				return err
			}
		}
	}
}

func newFlowFilter(which api.FlowFilter) (flow.Filter, error) {
	filter, err := flow.NewFilter(which, datapath.DropReasons())
	if err != nil {
		return filter, api.Errorf(api.CodeInvalid, "filter: %v", err)
	}
	return filter, nil
}

func (a *Agent) flowsChoice() api.Choice {
	c := api.Choice{Name: "flows", Asked: string(a.config.Flows), Chosen: string(a.config.Flows)}
	c.Why = map[FlowsTold]string{
		FlowsPolicy: "`beeline flows` tells of pods that NetworkPolicies select, and of drops",
		FlowsAll:    "`beeline flows` tells of all pods, whose connections are remembered for it, and of drops",
		FlowsDrops:  "`beeline flows` tells of drops",
		FlowsOff:    "`beeline flows` tells of nothing",
	}[a.config.Flows]
	return c
}
