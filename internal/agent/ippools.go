package agent

import (
	"github.com/beeline-cni/beeline/internal/agent/ippools"
	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/ipclaim/files"
)

// newIPPools makes the IPPools of the agent's source.
func (a *Agent) newIPPools() (*ippools.Pools, error) {
	o := ippools.Options{Node: a.config.NodeName, StateDir: a.config.StateDir, Log: a.log}
	o.Uplink = func(pool string) (netdev.Uplink, bool) { return a.endpoints.PoolUplink(pool) }
	if server, ok := a.source.(*apiserver.Source); ok {
		o.Server, o.Ready = server.Claims(), server.ReadyNodes
		return ippools.New(o), nil
	}
	store, err := files.Open(a.config.StateDir)
	if store == nil {
		return nil, err
	}
	if err != nil {
		a.log.Error("IPClaims: addresses of files that cannot be read stay allocated until the files are removed", "error", err)
	}
	o.Files = store
	return ippools.New(o), nil
}
