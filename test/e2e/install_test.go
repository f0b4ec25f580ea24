package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/install"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// host has the directories of a node that agents install files in.
type host struct{ confDir, binDir, commandDir, from string }

func newHost(t *testing.T, p programs) host {
	t.Helper()
	dir := t.TempDir()
	h := host{filepath.Join(dir, "net.d"), filepath.Join(dir, "cni"), filepath.Join(dir, "bin"), filepath.Join(dir, "image")}
	if err := os.Mkdir(h.from, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{
		install.Command: p.Command(), install.Agent: p.Agent(), install.Plugin: filepath.Join(p.Dir, install.Plugin), install.PortMap: "/bin/true",
	} {
		content, err := os.ReadFile(program)
		if err == nil {
			err = os.WriteFile(filepath.Join(h.from, name), content, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h host) flags() []string {
	return []string{"--cni-conf-dir", h.confDir, "--cni-bin-dir", h.binDir, "--command-dir", h.commandDir}
}

// files are all installed files.
func (h host) files() []string {
	return []string{
		filepath.Join(h.confDir, install.Conflist), filepath.Join(h.binDir, install.Plugin),
		filepath.Join(h.binDir, install.PortMap), filepath.Join(h.commandDir, install.Command), filepath.Join(h.commandDir, install.Agent),
	}
}

func (h host) conflist() string { return h.files()[0] }

// TestInstallWhenReady checks that the agent installs the network when the node is ready and not before, restores
// removed files, and leaves them when it stops.
func TestInstallWhenReady(t *testing.T) {
	t.Parallel()
	c := newCluster(t, testbed.Options{Nodes: 1})
	n, p := c.nodes[0], current(t)
	h := newHost(t, p)
	if err := os.Remove(c.manifestFile(n)); err != nil {
		t.Fatal(err)
	}
	c.start(n, p, append(h.flags(), "--cni-plugin-from", h.from)...)
	c.waitProblem(n, "is not among the 0 Node objects")
	for _, file := range h.files() {
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s exists before the node is ready: %v", file, err)
		}
	}
	c.writeNode(n)
	c.waitReady(n)
	allExist := func() error {
		for _, file := range h.files() {
			if _, err := os.Stat(file); err != nil {
				return err
			}
		}
		return nil
	}
	if err := allExist(); err != nil {
		t.Errorf("ready before the installation: %v", err)
	}
	for _, file := range h.files() {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		eventually(t, allExist)
	}

	other := filepath.Join(h.confDir, "00-other.conflist")
	if err := os.WriteFile(other, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.waitProblem(n, "00-other.conflist sorts before 10-beeline.conflist")
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	c.waitNoProblem(n)

	// A failed installation makes the node not ready.
	plugin := filepath.Join(h.binDir, install.Plugin)
	if err := errors.Join(os.Remove(filepath.Join(h.from, install.Plugin)), os.Remove(plugin)); err != nil {
		t.Fatal(err)
	}
	c.waitProblem(n, "install "+plugin)
	if c.status(n).Ready {
		t.Error("ready without a plugin")
	}
	if err := c.terminate(n); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.conflist()); err != nil {
		t.Errorf("after the agent: %v", err)
	}
}

// TestUninstall removes everything that agent and plugin installed on a node, and nothing else.
func TestUninstall(t *testing.T) {
	t.Parallel()
	p := current(t)
	c := newCluster(t, testbed.Options{Subnets: 2, IPv6: true})
	n := c.nodes[0]
	h := newHost(t, p)
	before := remains(c, n)
	for _, n := range c.nodes {
		c.start(n, p, append(newHost(t, p).flags(), "--cni-plugin-from", h.from)...)
	}
	c.kill(n)
	c.start(n, p, append(h.flags(), "--cni-plugin-from", h.from, "--nodeport-acceleration=xdp")...)
	for _, n := range c.nodes {
		c.waitReady(n)
	}
	pods := c.addPods()
	if err := c.reach(pods.a, pods.far); err != nil {
		t.Fatal(err)
	}
	// Before, remains lists what must go. bpftool shows no name of an XDP program, only its mode.
	installed := remains(c, n)
	for _, what := range []string{"driver", "connect4", "getpeername6", "40000-65535"} {
		if !slices.Contains(installed, what) {
			t.Errorf("%s is not in %q", what, installed)
		}
	}
	foreign := filepath.Join(h.binDir, "bridge")
	if err := os.WriteFile(foreign, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	uninstall := func(flags ...string) (string, error) {
		args := append([]string{"uninstall", "--state-dir", n.stateDir(), "--bpffs", n.BPFFS}, h.flags()...)
		output, err := n.Output(t.Context(), p.Agent(), append(args, flags...)...)
		return string(output), err
	}
	if _, err := uninstall("--force"); err == nil || !strings.Contains(err.Error(), "another agent runs") {
		t.Errorf("while the agent runs: %v", err)
	}
	if err := c.terminate(n); err != nil {
		t.Error(err)
	}
	if _, err := uninstall(); err == nil || !containsAll(err.Error(), []string{"pods are attached", "--force"}) {
		t.Errorf("while pods are attached: %v", err)
	}
	if err := c.reach(pods.a, pods.far); err != nil {
		t.Errorf("after a rejected uninstall: %v", err)
	}
	output, err := uninstall("--force")
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range append(h.files(), "program from_pod", "program from_wire", "map routes", "device bl", "routes", "routing rules", "device beeline-vxlan",
		"program connect4 of sockets", "program wire_xdp", "map services", "map nat", "reservation of ports 40000-65535", n.stateDir()) {
		if !strings.Contains(output, "removed "+what) && !strings.Contains(output, " "+what) {
			t.Errorf("the output has no removed %s:\n%s", what, output)
		}
	}
	if left := remains(c, n); !slices.Equal(left, before) {
		t.Errorf("remains %q, before the installation %q", left, before)
	}
	for _, path := range append(h.files(), n.stateDir(), filepath.Join(n.BPFFS, "maps"), filepath.Join(n.BPFFS, "links")) {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left: %s (%v)", path, err)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("another network's plugin: %v", err)
	}
	if output, err := uninstall(); err != nil || !strings.HasPrefix(output, "nothing to remove") {
		t.Errorf("again: %s, %v", output, err)
	}
}

// remains lists the kernel's state on the node: devices, routes, rules, nftables tables, programs on devices and
// cgroups, and reserved ports.
func remains(c *cluster, n *node) (found []string) {
	c.t.Helper()
	err := n.Netlink(func(h *netlink.Handle) error {
		links, err := complete(h.LinkList)
		if err != nil {
			return err
		}
		for _, l := range links {
			found = append(found, "device "+l.Attrs().Name)
			for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
				filters, err := complete(func() ([]netlink.Filter, error) { return h.FilterList(l, parent) })
				if err != nil && len(filters) > 0 {
					return err
				}
				for _, f := range filters {
					found = append(found, fmt.Sprintf("filter %v", f))
				}
			}
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := complete(func() ([]netlink.Route, error) {
				return h.RouteListFiltered(family, &netlink.Route{Protocol: routesProtocol}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
			})
			if err != nil {
				return err
			}
			for _, r := range routes {
				found = append(found, fmt.Sprintf("route %v", r))
			}
			rules, err := complete(func() ([]netlink.Rule, error) { return h.RuleList(family) })
			if err != nil {
				return err
			}
			for _, r := range rules {
				found = append(found, fmt.Sprintf("rule %v", r))
			}
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, command := range [][]string{
		{"nft", "list", "tables"}, {"bpftool", "net", "show"}, {"bpftool", "cgroup", "show", n.Cgroup}, {"sysctl", "net.ipv4.ip_local_reserved_ports"}, {"sysctl", "net.ipv4.ip_local_port_range"},
	} {
		output, err := n.Output(c.t.Context(), command[0], command[1:]...)
		if err != nil {
			c.t.Fatal(err)
		}
		found = append(found, strings.Fields(string(output))...)
	}
	slices.Sort(found)
	return found
}
