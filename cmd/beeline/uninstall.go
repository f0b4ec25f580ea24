package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/internal/agent"
)

func newUninstallCommand(e env) *cobra.Command {
	config := agent.Defaults()
	config.CNIConfDir, config.CNIBinDir, config.CommandDir = "/etc/cni/net.d", "/opt/cni/bin", "/opt/beeline"
	var force, wait bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove from this node what the agent and the plugin have put there",
		Long: `Remove from this node what the agent and the plugin have put there.

The configuration for the container runtime goes first, then the plugins, BPF programs at
devices and sockets, maps, routes, the tunnel device, the reservation of ports for
translation and the state. The agent has to be stopped before. What was removed already is no error.

Kernel settings that the agent has changed stay as they are until the next start of the
machine, because others may rely on them by now: forwarding (net.ipv4.ip_forward,
net.ipv6.conf.all.forwarding) and, of the uplink, accept_ra, arp_notify, ndisc_notify and
mcast_resolicit. The agent's log has each with the value before.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("uninstall removes devices, routes and BPF programs and needs root")
			}
			removed := 0
			err := agent.Uninstall(config, force, func(what string) {
				fmt.Fprintln(e.stdout, "removed", what)
				removed++
			})
			if err != nil {
				return err
			}
			if removed == 0 {
				fmt.Fprintln(e.stdout, "nothing of Beeline is on this node")
			} else {
				fmt.Fprintln(e.stdout, "kernel settings that the agent has changed stay until the next start of the machine: see beeline uninstall --help")
			}
			if wait {
				<-cmd.Context().Done()
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&force, "force", false, "also when pods are attached: they lose their network")
	f.BoolVar(&wait, "wait", false, "when done, wait for a signal: the container of a DaemonSet must not end")
	f.StringVar(&config.StateDir, "state-dir", config.StateDir, "the agent's")
	f.StringVar(&config.BPFFS, "bpffs", config.BPFFS, "the agent's")
	f.StringVar(&config.CNIConfDir, "cni-conf-dir", config.CNIConfDir, "the agent's")
	f.StringVar(&config.CNIBinDir, "cni-bin-dir", config.CNIBinDir, "the agent's")
	f.StringVar(&config.CommandDir, "command-dir", config.CommandDir, "the agent's")
	return cmd
}
