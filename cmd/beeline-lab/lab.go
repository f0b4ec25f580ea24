package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// labName adds the flag --name.
func labName(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", testbed.Options{}.Defaults().Name, "name of the lab")
}

// nameFlag returns the flag that a hint needs for a lab that is not the default one.
func nameFlag(lab string) string {
	if lab == (testbed.Options{}).Defaults().Name {
		return ""
	}
	return " --name " + lab
}

func newUpCommand(e cli.Env) *cobra.Command {
	o := testbed.Options{Network: "beeline"}.Defaults()
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Create a lab: nodes and a network for their pods",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, err := labUp(cmd.Context(), o)
			if err != nil {
				return err
			}
			status, err := readLab(lab)
			if err == nil {
				err = status.print(e)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, nextSteps, nameFlag(lab.Name), lab.Node(0).Name, lab.Node(len(lab.Nodes())-1).Name)
			return nil
		},
	}
	labName(cmd, &o.Name)
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "number of nodes")
	f.StringVar(&o.Network, "network", o.Network, "network for the pods: "+strings.Join(network.Names(network.All()), ", "))
	f.IntVar(&o.Subnets, "subnets", o.Subnets, "number of subnets of the nodes, with a router between them")
	f.IntVar(&o.MTU, "mtu", o.MTU, "MTU of the link between the nodes")
	f.BoolVar(&o.IPv6, "ipv6", o.IPv6, "IPv6 addresses in addition to IPv4 ones")
	return cmd
}

// labUp creates a lab and its network. If that fails it leaves nothing.
func labUp(ctx context.Context, o testbed.Options) (*testbed.Lab, error) {
	podNetwork, err := network.Named(o.Network)
	if err != nil {
		return nil, fmt.Errorf("--network: %w", err)
	}
	if err := o.Validate(); err != nil { // before defaults replace zeros
		return nil, err
	}
	if _, err := testbed.Requirements(); err != nil {
		return nil, err
	}
	if why := podNetwork.Unsupported(); why != "" {
		return nil, fmt.Errorf("--network %s: %s", o.Network, why)
	}
	lab, err := testbed.Up(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := podNetwork.Up(ctx, lab); err != nil {
		err = fmt.Errorf("make network %s: %w", o.Network, err)
		return nil, errors.Join(err, lab.Down(context.WithoutCancel(ctx)))
	}
	return lab, nil
}

// nextSteps are commands to type after a lab is up.
const nextSteps = `
Next:
  beeline-lab add-pod%[1]s %[2]s client
  beeline-lab add-pod%[1]s %[3]s server
  beeline-lab exec%[1]s client -- ping -c 3 server
  beeline-lab down%[1]s
`

func newAddPodCommand(e cli.Env) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "add-pod NODE NAME",
		Short: "Add a pod to a node with the network's CNI plugin",
		Args:  cli.Arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, podNetwork, err := openLab(name)
			if err != nil {
				return err
			}
			node, ok := lab.NodeNamed(args[0])
			if !ok {
				return fmt.Errorf("lab %q has no node %q", name, args[0])
			}
			pod, err := network.AddPod(cmd.Context(), podNetwork, lab, node, args[1])
			if err != nil {
				return err
			}
			if pod.Netns == node.Netns {
				fmt.Fprintf(e.Stdout, "The network %s has no pods: use the node %s itself.\n", lab.Network, node.Name)
				return nil
			}
			fmt.Fprintf(e.Stdout, "Pod %s is on %s with %s, MTU %d.\n", pod.Name, node.Name, joined(pod.Addresses), pod.MTU)
			return nil
		},
	}
	labName(cmd, &name)
	return cmd
}

func newDelPodCommand(e cli.Env) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "del-pod NAME",
		Short: "Delete a pod with the network's CNI plugin",
		Args:  cli.Arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, podNetwork, err := openLab(name)
			if err != nil {
				return err
			}
			pod, ok, err := lab.PodNamed(args[0])
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("lab %q has no pod %q", name, args[0])
			}
			if err := network.DelPod(cmd.Context(), podNetwork, lab, pod); err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "Pod %s is gone.\n", pod.Name)
			return nil
		},
	}
	labName(cmd, &name)
	return cmd
}

// exitNotFound is the exit code that a shell returns for a program that does not exist.
const exitNotFound cli.ExitCode = 127

func newExecCommand(e cli.Env) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "exec [flags] NODE|POD -- COMMAND [ARGUMENT...]",
		Short:   "Run a command on a node or in a pod",
		Example: "  beeline-lab exec n1 -- ip route\n  beeline-lab exec client -- ping -c 3 server",
		Args:    cli.Arguments(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := testbed.Open(name)
			if err != nil {
				return hintNotUp(name, err)
			}
			node, netns, where, err := findNetns(lab, args[0])
			if err != nil {
				return err
			}
			command := args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			if len(command) == 0 {
				return errors.New("no command: want NODE|POD -- COMMAND")
			}
			if _, err := exec.LookPath(command[0]); errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(e.Stderr, "beeline-lab: no program %q in %s\n", command[0], where)
				return exitNotFound
			}
			// No context: an interrupt from the terminal reaches the command itself.
			child := lab.Command(command[0], command[1:]...)
			child.Env = os.Environ()
			if podNetwork, err := network.Named(lab.Network); err == nil { // a lab may have no network
				child.Env = append(child.Env, cli.SocketVariable+"="+network.AgentSocket(podNetwork, node))
			}
			child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), e.Stdout, e.Stderr
			return passOn(netns.Run(child))
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after the first argument belong to COMMAND
	labName(cmd, &name)
	return cmd
}

// findNetns finds a node or pod by its name, and the node it is on. where names it with its kind, for messages.
func findNetns(lab *testbed.Lab, name string) (node *testbed.Node, netns testbed.Netns, where string, err error) {
	if node, ok := lab.NodeNamed(name); ok {
		return node, node.Netns, "node " + name, nil
	}
	pod, ok, err := lab.PodNamed(name)
	if err != nil {
		return nil, testbed.Netns{}, "", err
	}
	if !ok {
		return nil, testbed.Netns{}, "", fmt.Errorf("lab %q has no node or pod %q", lab.Name, name)
	}
	node, ok = lab.NodeNamed(pod.Node)
	if !ok {
		return nil, testbed.Netns{}, "", fmt.Errorf("lab %q has no node %q", lab.Name, pod.Node)
	}
	return node, pod.Netns, "pod " + name, nil
}

// passOn converts the end of a command to the exit code that a shell returns.
func passOn(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return cli.ExitCode(128 + int(status.Signal()))
	}
	return cli.ExitCode(exit.ExitCode())
}

func newDownCommand(e cli.Env) *cobra.Command {
	var name string
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a lab, or what an interrupted command left of one",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			listed, err := testbed.List()
			if err != nil {
				return err
			}
			removed := 0
			for _, l := range listed {
				if !all && l.Name != name {
					continue
				}
				if err := testbed.Down(cmd.Context(), l.Name); err != nil {
					return err
				}
				removed++
				fmt.Fprintf(e.Stdout, "Lab %q is gone.\n", l.Name)
			}
			if removed == 0 && all {
				fmt.Fprintln(e.Stdout, "There is no lab.")
			} else if removed == 0 {
				fmt.Fprintf(e.Stdout, "There is no lab %q.\n", name)
			}
			return nil
		},
	}
	labName(cmd, &name)
	cmd.Flags().BoolVar(&all, "all", false, "remove all labs of this machine")
	cmd.MarkFlagsMutuallyExclusive("name", "all")
	return cmd
}

// openLab returns a lab that is up, and its network.
func openLab(name string) (*testbed.Lab, network.Network, error) {
	lab, err := testbed.Open(name)
	if err != nil {
		return nil, nil, hintNotUp(name, err)
	}
	podNetwork, err := network.Named(lab.Network)
	return lab, podNetwork, err
}

// hintNotUp adds the commands for a lab that is not up.
func hintNotUp(name string, err error) error {
	if !errors.Is(err, testbed.ErrNotUp) {
		return err
	}
	flag := nameFlag(name)
	return fmt.Errorf("%w (%s creates it, %s removes an incomplete one)", err, "beeline-lab up"+flag, "beeline-lab down"+flag)
}
