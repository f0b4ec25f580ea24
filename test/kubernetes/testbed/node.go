package testbed

import (
	"context"
	"fmt"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// StopNode takes the power from a node. Its disk stays.
func (b *Testbed) StopNode(ctx context.Context, name string) error {
	return b.change(ctx, name, b.stopNode)
}

// StartNode gives the node power again, after StopNode.
func (b *Testbed) StartNode(ctx context.Context, name string) error {
	return b.change(ctx, name, b.startNode)
}

// RestartNode is a hard reboot: network namespace, /run and the BPF file system are new afterwards, what is on
// the disk is not. It does not wait for the node to be ready.
func (b *Testbed) RestartNode(ctx context.Context, name string) error {
	return b.change(ctx, name, func(ctx context.Context, n plan.Machine) error {
		if err := b.stopNode(ctx, n); err != nil {
			return err
		}
		return b.startNode(ctx, n)
	})
}

// change does something to a node while no other command changes the cluster.
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
	// The namespace goes with its name and the last process; a command that somebody runs in it can keep it, but
	// not its wire.
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
	for _, other := range b.Cluster.Nodes { // the routes that were in the node's namespace
		for _, batch := range b.Cluster.PodRoutes(other, ranges[other.Name]) {
			if batch.Netns != n.Name {
				continue
			}
			if err := apply(ctx, batch); err != nil {
				return err
			}
		}
	}
	return machine.Start(n.Name)
}
