package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// labStatus is one lab in `beeline-lab status -o json`.
type labStatus struct {
	Name string `json:"name"`
	// Whole is false for a lab that an interrupted command left incomplete: it has a Name only.
	Whole             bool         `json:"whole"`
	Network           string       `json:"network,omitempty"`
	MTU               int          `json:"mtu,omitempty"`
	CongestionControl string       `json:"congestionControl,omitempty"`
	Nodes             []nodeStatus `json:"nodes,omitempty"`
}

type nodeStatus struct {
	*testbed.Node
	Processes int `json:"processes"`
	// AgentPID is 0 where no agent runs.
	AgentPID int            `json:"agentPID"`
	Pods     []*testbed.Pod `json:"pods"`
}

func newStatusCommand(e cli.Env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show labs, nodes and pods",
		Args:  cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output: %q is neither text nor json", output)
			}
			labs, err := readLabs()
			if err != nil {
				return err
			}
			if output == "json" {
				return cli.JSON(e.Stdout, labs)
			}
			if len(labs) == 0 {
				fmt.Fprintln(e.Stdout, "There is no lab.")
			}
			for i, lab := range labs {
				if i > 0 {
					fmt.Fprintln(e.Stdout)
				}
				if err := lab.print(e); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json")
	return cmd
}

func readLabs() ([]labStatus, error) {
	listed, err := testbed.List()
	if err != nil {
		return nil, err
	}
	labs := []labStatus{}
	for _, l := range listed {
		status := labStatus{Name: l.Name}
		if l.Lab != nil {
			if status, err = readLab(l.Lab); err != nil {
				return nil, err
			}
		}
		labs = append(labs, status)
	}
	return labs, nil
}

func readLab(lab *testbed.Lab) (labStatus, error) {
	s := labStatus{Name: lab.Name, Whole: true, Network: lab.Network, MTU: lab.MTU, CongestionControl: lab.CongestionControl}
	pods, err := lab.Pods()
	if err != nil {
		return s, err
	}
	podNetwork, err := network.Named(lab.Network)
	for _, node := range lab.Nodes() {
		n := nodeStatus{Node: node, Pods: []*testbed.Pod{}}
		if err == nil { // a lab may have no network
			n.AgentPID = network.AgentPID(podNetwork, node)
		}
		processes, err := node.Processes()
		if err != nil {
			return s, err
		}
		n.Processes = len(processes)
		for _, p := range pods {
			if p.Node == node.Name {
				n.Pods = append(n.Pods, p)
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s, nil
}

func (s labStatus) print(e cli.Env) error {
	if !s.Whole {
		fmt.Fprintf(e.Stdout, "Lab %q is incomplete: the command that made it was interrupted. Remove what is left: beeline-lab down%s\n", s.Name, nameFlag(s.Name))
		return nil
	}
	fmt.Fprintf(e.Stdout, "Lab %q: %d nodes, network %s, MTU %d, congestion control %s\n\n",
		s.Name, len(s.Nodes), cmp.Or(s.Network, "none"), s.MTU, s.CongestionControl)
	nodes := [][]string{{"NODE", "ADDRESS", "POD ADDRESSES", "PROCESSES", "AGENT"}}
	pods := [][]string{{"POD", "NODE", "ADDRESS", "MTU"}}
	for _, n := range s.Nodes {
		agent := "-"
		switch {
		case n.AgentPID != 0:
			agent = fmt.Sprintf("process %d", n.AgentPID)
		case strings.HasPrefix(s.Network, "beeline"):
			agent = "not running"
		}
		nodes = append(nodes, []string{n.Name, joined(n.Addresses), joined(n.PodCIDRs), fmt.Sprint(n.Processes), agent})
		for _, p := range n.Pods {
			pods = append(pods, []string{p.Name, p.Node, joined(p.Addresses), fmt.Sprint(p.MTU)})
		}
	}
	if err := cli.Table(e.Stdout, nodes); err != nil || len(pods) == 1 {
		return err
	}
	fmt.Fprintln(e.Stdout)
	return cli.Table(e.Stdout, pods)
}

func joined[T fmt.Stringer](values []T) string {
	var all []string
	for _, v := range values {
		all = append(all, v.String())
	}
	return strings.Join(all, " ")
}
