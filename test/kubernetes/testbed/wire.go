package testbed

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/program"
)

func run(ctx context.Context, name string, args ...string) error {
	_, err := program.Output(exec.CommandContext(ctx, name, args...))
	return err
}

// apply runs the batches in order.
func apply(ctx context.Context, batches ...plan.Batch) error {
	for _, b := range batches {
		args := []string{"-n", plan.Netns(b.Netns), "-batch", "-"}
		if b.Family != "" {
			args = append([]string{b.Family}, args...)
		}
		cmd := exec.CommandContext(ctx, "ip", args...)
		cmd.Stdin = strings.NewReader(strings.Join(b.Commands, "\n") + "\n")
		if _, err := program.Output(cmd); err != nil {
			return fmt.Errorf("wire %s: %w", b.Netns, err)
		}
	}
	return nil
}

// namespaceSysctls are set in each network namespace of the cluster. Machines forward packets, as nodes of Kubernetes
// must.
var namespaceSysctls = []string{
	"net.ipv4.ip_forward=1",
	"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
	"net.ipv6.conf.all.forwarding=1",
	"net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.accept_ra=0", "net.ipv6.conf.default.router_solicitations=0",
}

// makeNamespace makes a network namespace of the cluster. name has no prefix.
func makeNamespace(ctx context.Context, name string) error {
	if err := run(ctx, "ip", "netns", "add", plan.Netns(name)); err != nil {
		return err
	}
	return run(ctx, "nsenter", append([]string{"--net=" + plan.NetnsPath(name), "sysctl", "-q", "-w"}, namespaceSysctls...)...)
}

// bridgeQuiet keeps bridged packets out of netfilter. Without br_netfilter the settings do not exist, which is no error.
func bridgeQuiet(ctx context.Context) {
	_ = run(ctx, "nsenter", "--net="+plan.NetnsPath("wire"), "sysctl", "-q", "-w",
		"net.bridge.bridge-nf-call-iptables=0", "net.bridge.bridge-nf-call-ip6tables=0")
}

// wireAll makes all namespaces and links.
func wireAll(ctx context.Context, c plan.Cluster) error {
	for _, name := range c.Namespaces() {
		if err := makeNamespace(ctx, name); err != nil {
			return err
		}
	}
	bridgeQuiet(ctx)
	if err := apply(ctx, c.WireLinks()...); err != nil {
		return err
	}
	for _, m := range c.Machines() {
		if err := apply(ctx, c.WireMachine(m)...); err != nil {
			return err
		}
	}
	return nil
}

// ourNamespaces lists the network namespaces of this machine with the cluster's prefix.
func ourNamespaces(ctx context.Context) ([]string, error) {
	out, err := program.Output(exec.CommandContext(ctx, "ip", "netns", "list"))
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, plan.NetnsPrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
