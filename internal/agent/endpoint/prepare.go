package endpoint

import (
	"cmp"
	"context"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Prepare chooses the kind of a new pod's device: that of the network configuration, else that of the node.
func (e *Endpoints) Prepare(_ context.Context, req agentapi.PrepareRequest) (*agentapi.Preparation, error) {
	if err := validateAttachment(req.Attachment); err != nil {
		return nil, err
	}
	kind := cmp.Or(device.Kind(req.Device), e.Device)
	if !kind.Known() {
		return nil, agentapi.Errorf(agentapi.CodeNoDevice, "%q is not one of the kinds of devices: %q", req.Device, device.Kinds)
	}
	if kind == device.Netkit && e.NoNetkit != nil {
		return nil, agentapi.Errorf(agentapi.CodeNoDevice, "this node has no netkit devices: %v", e.NoNetkit)
	}
	return &agentapi.Preparation{Device: string(kind)}, nil
}
