package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
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
		Args:  cobra.NoArgs,
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
			return printLabs(e, labs)
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
		status := labStatus{Name: l.Name, Whole: l.Lab != nil}
		if status.Whole {
			if err := status.read(l.Lab); err != nil {
				return nil, err
			}
		}
		labs = append(labs, status)
	}
	return labs, nil
}

func (s *labStatus) read(lab *testbed.Lab) error {
	s.Network, s.MTU, s.CongestionControl = lab.Network, lab.MTU, lab.CongestionControl
	pods, err := lab.Pods()
	if err != nil {
		return err
	}
	podNetwork, err := network.Named(lab.Network)
	for _, node := range lab.Nodes() {
		n := nodeStatus{Node: node, Pods: []*testbed.Pod{}}
		if err == nil { // a lab may have no network
			n.AgentPID = network.AgentPID(podNetwork, node)
		}
		processes, err := node.Processes()
		if err != nil {
			return err
		}
		n.Processes = len(processes)
		for _, p := range pods {
			if p.Node == node.Name {
				n.Pods = append(n.Pods, p)
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return nil
}

func printLabs(e cli.Env, labs []labStatus) error {
	if len(labs) == 0 {
		fmt.Fprintln(e.Stdout, "There is no lab.")
		return hints(e, "beeline-lab up", "create a lab of two nodes with Beeline")
	}
	for i, lab := range labs {
		if i > 0 {
			fmt.Fprintln(e.Stdout)
		}
		if err := printLab(e, lab); err != nil {
			return err
		}
	}
	return nil
}

func printLab(e cli.Env, lab labStatus) error {
	if !lab.Whole {
		fmt.Fprintf(e.Stdout, "Lab %q is incomplete: the command that made it was interrupted.\n", lab.Name)
		return hints(e, "beeline-lab down"+nameFlag(lab.Name), "remove what is left")
	}
	fmt.Fprintf(e.Stdout, "Lab %q: %s, network %s, MTU %d, congestion control %s\n\n",
		lab.Name, plural(len(lab.Nodes), "node"), cmp.Or(lab.Network, "none"), lab.MTU, lab.CongestionControl)
	nodes := [][]string{{"NODE", "ADDRESS", "POD ADDRESSES", "PROCESSES", "AGENT"}}
	pods := [][]string{{"POD", "NODE", "ADDRESS", "MTU"}}
	for _, n := range lab.Nodes {
		agent := "-"
		switch {
		case n.AgentPID != 0:
			agent = fmt.Sprintf("process %d", n.AgentPID)
		case strings.HasPrefix(lab.Network, "beeline"):
			agent = "not running"
		}
		nodes = append(nodes, []string{n.Name, joined(n.Addresses), joined(n.PodCIDRs), fmt.Sprint(n.Processes), agent})
		for _, p := range n.Pods {
			pods = append(pods, []string{p.Name, p.Node, joined(p.Addresses), fmt.Sprint(p.MTU)})
		}
	}
	if err := cli.Table(e.Stdout, nodes); err != nil {
		return err
	}
	if len(pods) == 1 {
		return hints(e, "beeline-lab add-pod"+nameFlag(lab.Name)+" "+lab.Nodes[0].Name+" client", "add a pod")
	}
	fmt.Fprintln(e.Stdout)
	return cli.Table(e.Stdout, pods)
}

// hints prints commands to type next. pairs are commands, each followed by its description.
func hints(e cli.Env, pairs ...string) error {
	fmt.Fprintln(e.Stdout, "\nNext:")
	var rows [][]string
	for i := 0; i+1 < len(pairs); i += 2 {
		rows = append(rows, []string{"  " + typed(pairs[i]), "# " + pairs[i+1]})
	}
	return cli.Table(e.Stdout, rows)
}

// typed returns a command line that works when copied: with the directory of this program, and sudo if it was used.
func typed(command string) string {
	if dir := filepath.Dir(os.Args[0]); strings.Contains(os.Args[0], "/") {
		command = dir + "/" + strings.ReplaceAll(command, "-- beeline ", "-- "+dir+"/beeline ")
	}
	if os.Getenv("SUDO_USER") != "" {
		command = "sudo " + command
	}
	return command
}

func joined[T fmt.Stringer](values []T) string {
	var all []string
	for _, v := range values {
		all = append(all, v.String())
	}
	return strings.Join(all, " ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
