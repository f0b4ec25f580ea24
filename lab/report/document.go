package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// New makes the report of a run. It measures nothing: every figure comes from the run, and what is derived here comes
// from its samples.
func New(run *result.Run) *Document {
	v := newView(run)
	d := &Document{
		Title: headline(run), Provenance: v.provenance(), Cautions: v.cautions(), method: newMethod(run),
		Key: []string{
			"Ratio: network ÷ node within a round, median over the rounds, with its 95 % interval.",
			"~: no difference decided, the interval includes 1 or there are too few rounds for one. ↓: lower is better. " + dash + ": no value.",
			v.aaCheck().String(),
		},
	}
	for _, s := range []Section{
		v.overview(), v.builds(), v.targetSection(), v.services(), v.nodePort(), v.policy(), v.figureTables(), v.routes(),
		v.latency(), v.cpu(), v.bpf(), v.footprint(), v.studies(), v.trust(), v.environment(),
	} {
		s.Tables = slices.DeleteFunc(s.Tables, func(t *Table) bool { return !t.on(Everywhere) })
		if len(s.Tables) > 0 {
			d.Sections = append(d.Sections, s)
		}
	}
	return d
}

func headline(run *result.Run) string {
	what, where := "container networking costs", "machine"
	switch {
	case run.Services != nil:
		what = "Services cost"
	case run.NodePort != nil:
		what = "NodePorts cost"
	case run.Policy != nil:
		what = "policies and flows cost"
	}
	if run.Cluster != nil {
		where = "cluster"
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
	first := []string{"Beeline bench"}
	for _, s := range []string{run.Settings.Suite, run.Settings.Mode, run.Version} {
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
	if m := machine(run.Environment); m != "" {
		lines = append(lines, m)
	}
	if run.Cluster != nil {
		lines = append(lines, clusterLine(run.Cluster, run.Settings.MTU))
	}
	lines = append(lines, v.compared())
	if len(run.Command) > 0 {
		lines = append(lines, commandPrefix+commandText(run.Command))
	}
	return lines
}

// machine names the processor, memory, kernel and distribution.
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
	for _, s := range []string{e.Distribution, e.Virtualization} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " · ")
}

// compared counts what was compared.
func (v *view) compared() string {
	networks, workloads := 0, map[string]bool{}
	for _, n := range v.run.Networks {
		if n.Unsupported == "" && n.Name != stats.Again {
			networks++
		}
	}
	for _, f := range v.figures {
		workloads[f.key.Workload] = true
	}
	parts := []string{plural(networks, strings.ToLower(v.noun())), plural(len(workloads), "workload"), plural(len(v.run.Rounds), "round")}
	if n := len(v.run.Samples); n > 0 {
		parts = append(parts, count(n)+" samples")
	}
	return strings.Join(parts, " · ")
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
