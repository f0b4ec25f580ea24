package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// New makes the report of a run. It measures nothing: every figure comes from the run, and what is derived here comes
// from its samples.
func New(run *result.Run) *Document {
	v := newView(run)
	d := &Document{
		Title: headline(run), Provenance: v.provenance(), Cautions: v.cautions(), Run: run,
		Key: []string{
			"Ratio: network ÷ node within a round, median over the rounds, with its 95 % interval.",
			"~: no difference decided, the interval includes 1 or there are too few rounds for one. ↓: lower is better. " + dash + ": no value.",
			"A/A check: " + stats.Again + " is the node, measured a second time in each round. Differences as small as its own mean nothing.", v.roundNote(),
		},
	}
	for _, s := range []Section{
		v.overview(), v.builds(), v.targetSection(), v.services(), v.nodePort(), v.policy(), v.encryption(), v.figureTables(), v.routes(),
		v.latency(), v.cpu(), v.bpf(), v.footprint(), v.studies(), v.trust(), v.environment(),
	} {
		s.Tables = slices.DeleteFunc(s.Tables, func(t *Table) bool { return len(t.Rows) == 0 })
		if len(s.Tables) > 0 {
			d.Sections = append(d.Sections, s)
		}
	}
	return d
}

func headline(run *result.Run) string {
	where := "machine"
	if run.Cluster != nil {
		where = "cluster"
	}
	what := "container networking costs"
	switch run.Settings.Suite {
	case "services":
		what = "Services cost"
	case "nodeport":
		what = "NodePorts cost"
	case "policy":
		what = "NetworkPolicies cost"
	case "encryption":
		what = "encryption costs"
	}
	return "What " + what + " on this " + where
}

// noun is what the run compares: networks, or on a cluster routes through its one network.
func (v *view) noun() string {
	if v.run.Cluster != nil {
		return "Route"
	}
	return "Network"
}

// commandPrefix marks the line of the provenance that is a command.
const commandPrefix = "Command: "

// provenance is what was run, where and when.
func (v *view) provenance() []string {
	run := v.run
	started, took := "", ""
	if !run.Started.IsZero() {
		started = run.Started.UTC().Format("2006-01-02 15:04 UTC")
	}
	if run.Finished.After(run.Started) {
		took = run.Finished.Sub(run.Started).Round(time.Second).String()
	}
	lines := []string{listed("Beeline bench", run.Settings.Suite, run.Settings.Mode, run.Version, started, took)}
	if m := machine(run.Environment); m != "" {
		lines = append(lines, m)
	}
	if c := run.Cluster; c != nil {
		nodes, mtu := c.Client.Name, ""
		if c.Server.Name != c.Client.Name {
			nodes += " → " + c.Server.Name
		}
		if run.Settings.MTU > 0 {
			mtu = fmt.Sprintf("path MTU %d", run.Settings.MTU)
		}
		lines = append(lines, listed("Kubernetes "+c.Kubernetes, "network "+c.CNI, "kube-proxy "+c.KubeProxy, nodes, mtu))
	}
	lines = append(lines, v.compared())
	if len(run.Command) > 0 {
		lines = append(lines, commandPrefix+commandText(run.Command))
	}
	return lines
}

// machine names the processor, memory, kernel and distribution.
func machine(e result.Environment) string {
	kernel := ""
	if e.Kernel != "" {
		kernel = "Linux " + strings.TrimPrefix(e.Kernel, "Linux ")
	}
	return listed(processors(e), positive(float64(e.MemoryBytes), "B"), kernel, e.Distribution, e.Virtualization)
}

func processors(e result.Environment) string {
	if e.CPUs == 0 {
		return e.CPU
	}
	return fmt.Sprintf("%d × %s", e.CPUs, e.CPU)
}

// compared counts what was compared.
func (v *view) compared() string {
	networks, workloads := 0, map[string]bool{}
	for _, n := range v.run.Networks {
		if n.Unsupported == "" {
			networks++
		}
	}
	for _, f := range v.figures {
		workloads[f.key.Workload] = true
	}
	samples := ""
	if n := len(v.run.Samples); n > 0 {
		samples = count(n) + " samples"
	}
	return listed(plural(networks, strings.ToLower(v.noun())), plural(len(workloads), "workload"), plural(len(v.run.Rounds), "round"), samples)
}

// commandText joins a command line as one would type it.
func commandText(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`&|;<>*?()[]{}#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		quoted[i] = a
	}
	return strings.Join(quoted, " ")
}
