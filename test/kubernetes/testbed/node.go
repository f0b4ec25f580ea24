package testbed

import (
	"context"
	"fmt"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// StopNode powers off a node. Its disk stays.
func (b *Testbed) StopNode(ctx context.Context, name string) error {
	return b.change(ctx, name, b.stopNode)
}

// StartNode powers on a node after StopNode.
func (b *Testbed) StartNode(ctx context.Context, name string) error {
	return b.change(ctx, name, b.startNode)
}

// RestartNode is a hard reboot: network namespace, /run and the BPF file system are new afterwards, the disk is not. It
// does not wait until the node is ready.
func (b *Testbed) RestartNode(ctx context.Context, name string) error {
	return b.change(ctx, name, func(ctx context.Context, n plan.Machine) error {
		if err := b.stopNode(ctx, n); err != nil {
			return err
		}
		return b.startNode(ctx, n)
	})
}

// change changes a node while the cluster is locked.
func (b *Testbed) change(ctx context.Context, name string, do func(context.Context, plan.Machine) error) error {
	n, err := b.Cluster.Node(name)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return do(ctx, n)
}

func (b *Testbed) stopNode(ctx context.Context, n plan.Machine) error {
	if err := machine.Stop(ctx, n.Name); err != nil {
		return err
	}
	// The namespace ends with its name and its last process. A user's command in it can keep it, but not its link.
	if err := apply(ctx, b.Cluster.UnplugMachine(n)); err != nil {
		return err
	}
	return run(ctx, "ip", "netns", "delete", plan.Netns(n.Name))
}

func (b *Testbed) startNode(ctx context.Context, n plan.Machine) error {
	if running, err := machine.Running(n.Name); err != nil || running {
		if err == nil {
			err = fmt.Errorf("node %s is running", n.Name)
		}
		return err
	}
	if err := makeNamespace(ctx, n.Name); err != nil {
		return err
	}
	if err := apply(ctx, b.Cluster.WireMachine(n)...); err != nil {
		return err
	}
	ranges, err := b.ranges(ctx)
	if err != nil {
		return err
	}
	for _, other := range b.Cluster.Nodes { // restores the routes of the node's namespace
		for _, batch := range b.Cluster.PodRoutes(other, ranges[other.Name]) {
			if batch.Netns != n.Name {
				continue
			}
			if err := apply(ctx, batch); err != nil {
				return err
			}
		}
	}
	return machine.Start(n.Name, b.binaries)
}
