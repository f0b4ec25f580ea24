package report

import (
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// provenance says in two or three lines what was run, where and when.
func provenance(run *result.Run) []string {
	e := run.Environment
	first := []string{"Beeline bench"}
	for _, s := range []string{run.Settings.Mode, run.Version} {
		if s != "" {
			first = append(first, s)
		}
	}
	if !run.Started.IsZero() {
		first = append(first, run.Started.UTC().Format("2006-01-02 15:04 UTC"))
		if run.Finished.After(run.Started) {
			first = append(first, duration(run.Finished.Sub(run.Started)))
		}
	}
	lines := []string{strings.Join(first, " · ")}
	if m := machine(e); m != "" {
		lines = append(lines, m)
	}
	if c := run.Cluster; c != nil {
		lines = append(lines, clusterLine(c, run.Settings.MTU))
	}
	return lines
}

// clusterLine names a cluster in one line: version, network, how Services are translated, nodes, MTU.
func clusterLine(c *result.Cluster, mtu int) string {
	nodes := c.Client.Name + " → " + c.Server.Name
	if c.Client.Name == c.Server.Name {
		nodes = c.Client.Name
	}
	parts := []string{"Kubernetes " + c.Kubernetes, "network " + c.CNI, "kube-proxy " + c.KubeProxy, nodes}
	if mtu > 0 {
		parts = append(parts, fmt.Sprintf("path MTU %d", mtu))
	}
	return strings.Join(parts, " · ")
}

// machine names the machine in one line: processor, memory, kernel, distribution.
func machine(e result.Environment) string {
	var parts []string
	if e.CPUs > 0 || e.CPU != "" {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d × %s", e.CPUs, e.CPU)))
	}
	if e.MemoryBytes > 0 {
		parts = append(parts, quantity(float64(e.MemoryBytes), "B"))
	}
	if e.Kernel != "" {
		parts = append(parts, "Linux "+strings.TrimPrefix(e.Kernel, "Linux "))
	}
	if e.Distribution != "" {
		parts = append(parts, e.Distribution)
	}
	if e.Virtualization != "" {
		parts = append(parts, e.Virtualization)
	}
	return strings.Join(parts, " · ")
}
