package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

func newEndpointsCommand(e cli.Env) *cobra.Command {
	return newListCommand(e, "endpoints", "List the local pods with their addresses and devices", (*agentapi.Client).Endpoints, printEndpoints,
		func(p agentapi.Endpoint) string {
			if p.Pod.Name == "" {
				return "container/" + p.ContainerID
			}
			return "pod/" + p.Pod.Name
		})
}

func printEndpoints(w io.Writer, all []agentapi.Endpoint, wide bool) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "No pods on this node.")
		return nil
	}
	rows := [][]string{{"POD", "CONTAINER", "INTERFACE", "ADDRESSES", "IPPOOL", "MTU", "KIND", "HOST DEVICE", "PATH", "STATE"}}
	for _, p := range all {
		name := "-"
		if p.Pod.Name != "" {
			name = p.Pod.Namespace + "/" + p.Pod.Name
		}
		rows = append(rows, []string{name, short(p.ContainerID), p.IfName, join(p.Addresses), dash(p.Pool), fmt.Sprint(p.MTU), dash(p.Device), p.HostDevice, path(p), p.State})
	}
	return printTable(w, rows, wide, "CONTAINER", "INTERFACE", "IPPOOL", "MTU", "KIND")
}

// path is what forwards a pod's packets: eBPF, or the kernel stack and the reason for it.
func path(e agentapi.Endpoint) string {
	if e.ThroughStack == "" {
		return "ebpf"
	}
	return fmt.Sprintf("kernel (%s)", e.ThroughStack)
}

// short truncates a container id as runtimes do.
func short(id string) string {
	const enough = 13
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
