package cni

import (
	"context"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// gcFactor multiplies the timeout of GC.
const gcFactor = 6

// GC makes the agent remove every endpoint of this network that is not among the valid attachments. A missing list is
// an error: as an empty list it would remove every pod's endpoint.
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
	// The kernel waits about 20 ms (an RCU grace period) for each device that it deletes; there may be a thousand.
	ctx, cancel := context.WithTimeout(context.Background(), gcFactor*p.Timeout)
	defer cancel()
	if err := p.Agent(conf.AgentSocket).GC(ctx, req); err != nil {
		return agentError("collect garbage", conf.AgentSocket, err)
	}
	return nil
}
