package agent

import (
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/mode"
	"github.com/beeline-cni/beeline/internal/agent/samenode"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath"
	dpsamenode "github.com/beeline-cni/beeline/internal/datapath/samenode"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// newSameNode makes the same-node sockets. If the node cannot do it, pods exchange packets. If it is off, what an
// earlier agent left is removed.
func (a *Agent) newSameNode(dp *datapath.Datapath) {
	o := samenode.Options{
		Config: a.config.SocketConfig, Endpoints: a.endpointsNow, Ready: a.policiesFilled,
		Beat: a.beats.Add("the loop of same-node sockets"), Log: a.log,
	}
	if a.config.SameNode == samenode.ModeSockets {
		loaded, err := a.loadSameNode(dp)
		if o.Impossible = err; err == nil {
			o.Datapath, a.sameNodeDatapath = loaded, loaded
		}
	}
	if o.Datapath == nil {
		if removed, err := dpsamenode.Remove(a.config.BPFFS); err != nil {
			a.log.Error("same-node sockets of an earlier agent", "error", err)
		} else if len(removed) > 0 {
			a.log.Info("same-node sockets of an earlier agent use packets again", "removed", removed)
		}
	}
	a.sameNode = samenode.New(o)
}

func (a *Agent) loadSameNode(dp *datapath.Datapath) (*dpsamenode.SameNode, error) {
	cgroup := a.modes.Cgroup
	if cgroup == "" {
		var err error
		if cgroup, err = mode.FindCgroup(a.config.Cgroup); err != nil {
			return nil, err
		}
	}
	return dp.SameNode(cgroup, uint32(a.config.SameNodeMax))
}

// endpointsNow gives the endpoints. It does not wait for the agent's lock.
func (a *Agent) endpointsNow() ([]agentapi.Endpoint, bool) {
	if !a.mu.TryLock() {
		return nil, false
	}
	defer a.mu.Unlock()
	return slices.Collect(a.endpoints.All()), true
}

// policiesFilled reports whether the tables hold the cluster's policies, or none are enforced.
func (a *Agent) policiesFilled() bool { return a.policies == nil || a.policies.Filled() }

// maps describes all tables.
func (a *Agent) maps() ([]table.MapInfo, error) {
	all, err := a.datapath.Maps()
	if err != nil || a.sameNodeDatapath == nil {
		return all, err
	}
	more, err := a.sameNodeDatapath.Maps()
	return append(all, more...), err
}
