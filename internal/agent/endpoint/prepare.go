package endpoint

import (
	"context"

	"github.com/beeline-cni/beeline/internal/agent/poddevice"
	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// Prepare chooses the kind of a new pod's device: see poddevice.Choose.
func (e *Endpoints) Prepare(ctx context.Context, req agentapi.PrepareRequest) (*agentapi.Preparation, error) {
	if err := validateAttachment(req.Attachment); err != nil {
		return nil, err
	}
	e.Lock.Lock()
	err := e.ready()
	e.Lock.Unlock()
	if err != nil {
		return nil, err
	}
	pod, err := e.IPPools.Device(ctx, req)
	if err != nil {
		return nil, err
	}
	pod.Network = device.Kind(req.Device)
	kind, err := poddevice.Choose(pod, poddevice.Node{Device: e.Device, DeviceOfPools: e.DeviceOfPools, NoNetkit: e.NoNetkit, VethRuntimeClasses: value.List(e.Config.VethRuntimeClasses)})
	if err != nil {
		return nil, agentapi.Errorf(agentapi.CodeNoDevice, "device of pod %s/%s: %v", req.Pod.Namespace, req.Pod.Name, err)
	}
	if kind == device.Macvlan {
		return e.prepareMacvlan(pod.Pool)
	}
	return &agentapi.Preparation{Device: string(kind)}, nil
}
