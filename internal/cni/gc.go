package cni

import (
	"context"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// gcFactor is how many times longer than any other question GC may take.
const gcFactor = 6

// GC has the agent remove every endpoint of this network that is not among the valid attachments. Without
// any list it does nothing but fail: taking that for an empty list would cut off every pod.
func (p *Plugin) GC(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	if !conf.HasValid {
		return invalidConfig("field \"cni.dev/valid-attachments\": missing, GC needs it")
	}
	req := agentapi.GCRequest{Network: conf.Name, Valid: make([]agentapi.Attachment, 0, len(conf.Valid))}
	for _, a := range conf.Valid {
		req.Valid = append(req.Valid, agentapi.Attachment{ContainerID: a.ContainerID, IfName: a.IfName})
	}
	// Each device that goes costs the kernel a grace period of some 20 ms; there may be a thousand.
	ctx, cancel := context.WithTimeout(context.Background(), gcFactor*p.Timeout)
	defer cancel()
	if err := p.Agent(conf.AgentSocket).GC(ctx, req); err != nil {
		return agentError("collect garbage", conf.AgentSocket, err)
	}
	return nil
}
