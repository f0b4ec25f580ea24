package endpoint

import (
	"cmp"
	"context"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Prepare chooses the kind of a new pod's device: that of the network configuration, else that of its IPPool, else that of
// the node.
func (e *Endpoints) Prepare(ctx context.Context, req agentapi.PrepareRequest) (*agentapi.Preparation, error) {
	if err := validateAttachment(req.Attachment); err != nil {
		return nil, err
	}
	ofPool, err := e.deviceOfPool(ctx, req.Pod)
	if err != nil {
		return nil, err
	}
	requested := cmp.Or(device.Kind(req.Device), device.Kind(ofPool))
	kind := cmp.Or(requested, e.Device)
	if !kind.Known() {
		return nil, agentapi.Errorf(agentapi.CodeNoDevice, "%q is not one of the kinds of devices: %q", requested, device.Kinds)
	}
	if kind == device.Netkit && e.NoNetkit != nil {
		return nil, agentapi.Errorf(agentapi.CodeNoDevice, "this node has no netkit devices: %v", e.NoNetkit)
	}
	return &agentapi.Preparation{Device: string(kind)}, nil
}

// deviceOfPool gives the kind of device that the IPPool of a pod names; empty if there is none.
func (e *Endpoints) deviceOfPool(ctx context.Context, pod agentapi.PodRef) (string, error) {
	e.Lock.Lock()
	err := e.ready()
	e.Lock.Unlock()
	if err != nil {
		return "", err
	}
	return e.IPPools.Device(ctx, pod)
}
