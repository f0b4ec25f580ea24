package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agent"
)

func newUninstallCommand(e cli.Env) *cobra.Command {
	config := agent.Defaults()
	config.CNIConfDir, config.CNIBinDir, config.CommandDir = "/etc/cni/net.d", "/opt/cni/bin", "/opt/beeline"
	var force, wait bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the network from this node",
		Long: `Remove everything that the agent and the CNI plugin installed on this node.

The CNI configuration goes first. Then follow the plugins, the BPF programs on devices and
sockets, maps, routes, the tunnel device, the VLAN devices of IPPools, the reserved port range
and the state directory.
Stop the agent first. It is no error if parts are missing already.

Kernel settings that the agent changed keep their values until the node reboots, because
other software may rely on them: forwarding (net.ipv4.ip_forward,
net.ipv6.conf.all.forwarding) and, on the uplink, accept_ra, arp_notify, ndisc_notify and
mcast_resolicit. The agent's log has the previous value of each.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("uninstall needs root: it removes devices, routes and BPF programs")
			}
			removed := 0
			err := agent.Uninstall(config, force, func(what string) {
				fmt.Fprintln(e.Stdout, "removed", what)
				removed++
			})
			if err != nil {
				return err
			}
			if removed == 0 {
				fmt.Fprintln(e.Stdout, "nothing to remove: Beeline is not installed on this node")
			} else {
				fmt.Fprintln(e.Stdout, "kernel settings keep their values until the node reboots: see beeline-agent uninstall --help")
			}
			if wait {
				<-cmd.Context().Done()
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&force, "force", false, "uninstall also while pods are attached; they lose their network")
	f.BoolVar(&wait, "wait", false, "wait for a signal when done, for the container of a DaemonSet")
	f.StringVar(&config.StateDir, "state-dir", config.StateDir, "the agent's --state-dir")
	f.StringVar(&config.BPFFS, "bpffs", config.BPFFS, "the agent's --bpffs")
	f.StringVar(&config.CNIConfDir, "cni-conf-dir", config.CNIConfDir, "the agent's --cni-conf-dir")
	f.StringVar(&config.CNIBinDir, "cni-bin-dir", config.CNIBinDir, "the agent's --cni-bin-dir")
	f.StringVar(&config.CommandDir, "command-dir", config.CommandDir, "the agent's --command-dir")
	return cmd
}
