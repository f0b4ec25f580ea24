package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

func newEndpointsCommand(e cli.Env) *cobra.Command {
	return newReadCommand(e, "endpoints", "List the pods of this node with their addresses and devices",
		func(cmd *cobra.Command, c *agentapi.Client) ([]agentapi.Endpoint, error) {
			return c.Endpoints(cmd.Context())
		}, printEndpoints)
}

func printEndpoints(w io.Writer, all []agentapi.Endpoint) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "No pods on this node.")
		return nil
	}
	rows := [][]string{{"POD", "CONTAINER", "INTERFACE", "ADDRESSES", "MTU", "HOST DEVICE", "WAY", "STATE"}}
	for _, p := range all {
		name := "-"
		if p.Pod.Name != "" {
			name = p.Pod.Namespace + "/" + p.Pod.Name
		}
		rows = append(rows, []string{name, short(p.ContainerID), p.IfName, join(p.Addresses), fmt.Sprint(p.MTU), p.HostDevice, way(p), p.State})
	}
	return cli.Table(w, rows)
}

// way tells how a pod's packets are forwarded: directly by the datapath, or by the host's stack and why.
func way(e agentapi.Endpoint) string {
	if e.ThroughStack == "" {
		return "direct"
	}
	return fmt.Sprintf("stack (%s)", e.ThroughStack)
}

// short cuts a container id to what runtimes print.
func short(id string) string {
	const enough = 13
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
