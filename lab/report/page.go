package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
)

// page is everything the template shows, already worded and formatted; the template only arranges it.
type page struct {
	Run                *result.Run
	Title, When, Took  string
	Machine, Compared  string
	Findings           []finding
	Cautions           []string
	Overview           []matrix
	Promises           []promiseRow
	Services           *serviceSection
	NodePort           *nodePortSection
	Policy             *policySection
	Groups             []figureGroup
	Latency            []latencySection
	CPU                []cpuSection
	Programs           *programSection
	Footprints         *footprintSection
	Published          *publishedSection
	Trust              trustSection
	Contenders         []contenderNote
	Missing            []contenderNote
	Environment        []fact
	Sysctls, Tools     []fact
	Features           []feature
	Commands           []commandLine
	Repeat             string
	PercentileSymbols  [4]template.HTML
	Style              template.CSS
	Script             template.JS
	UserFill, SysFill  template.HTML
	SoftirqFill        template.HTML
	HasRatios, Undated bool
}

type fact struct{ Name, Value string }

type feature struct {
	Name    string
	Present bool
}

// contenderNote describes a contender in words.
type contenderNote struct {
	result.Network
	Notes string
}

type commandLine struct{ What, Line string }

func newPage(run *result.Run) *page {
	v := newView(run)
	p := &page{
		Run: run, Title: "What container networking costs on this machine",
		Findings: v.findings(), Cautions: v.cautions(),
		Machine: machine(run.Environment), Compared: v.compared(),
		PercentileSymbols: [4]template.HTML{chart.PercentileSymbol(0), chart.PercentileSymbol(1), chart.PercentileSymbol(2), chart.PercentileSymbol(3)},
		UserFill:          chart.FillSymbol(0), SysFill: chart.FillSymbol(1), SoftirqFill: chart.FillSymbol(2),
		Repeat: commandText(run.Command),
	}
	if run.Cluster != nil {
		p.Title = "What container networking costs on this cluster"
		p.Machine = clusterLine(run.Cluster, run.Settings.MTU)
	}
	switch {
	case run.Services != nil:
		p.Title = "What Services cost on this machine"
	case run.NodePort != nil:
		p.Title = "What NodePorts cost on this machine"
	case run.Policy != nil:
		p.Title = "What policies and flows cost on this machine"
	}
	if run.Started.IsZero() {
		p.Undated = true
	} else {
		p.When = run.Started.UTC().Format("2 January 2006, 15:04 UTC")
	}
	if run.Finished.After(run.Started) {
		p.Took = duration(run.Finished.Sub(run.Started))
	}
	p.Overview = matrices(v)
	p.HasRatios = len(p.Overview) > 0
	p.Promises, p.Services, p.NodePort, p.Policy = v.promises(), v.services(), v.nodePort(), v.policy()
	p.Groups = figureGroups(v)
	p.Latency = latencySections(v)
	p.CPU = cpuSections(v)
	p.Programs = programSections(v)
	p.Footprints = footprints(v)
	p.Published = publishedFigures(v)
	p.Trust = trust(v)
	p.describeEnvironment(v)
	return p
}

// compared counts what was compared, for the line under the title.
func (v *view) compared() string {
	n := 0
	for _, c := range v.contenders() {
		if c.Unsupported == "" && c.Name != again {
			n++
		}
	}
	workloads := map[string]bool{}
	for _, f := range v.figures {
		workloads[f.workload] = true
	}
	parts := []string{plural(n, v.noun()), plural(len(workloads), "workload"), plural(len(v.run.Rounds), "round")}
	if len(v.run.Samples) > 0 {
		parts = append(parts, group(fmt.Sprint(len(v.run.Samples)))+" samples")
	}
	return strings.Join(parts, " · ")
}

func (p *page) describeEnvironment(v *view) {
	e, s := p.Run.Environment, p.Run.Settings
	for _, f := range []fact{
		{"Machine", e.Hostname}, {"Kernel", e.Kernel}, {"Distribution", e.Distribution},
		{"Processor", strings.TrimSpace(fmt.Sprintf("%s, %s", plural(e.CPUs, "CPU"), e.CPU))},
		{"Memory", quantity(float64(e.MemoryBytes), "B")}, {"Virtualization", e.Virtualization},
		{"Congestion control", e.CongestionControl}, {"Load before", e.LoadBefore},
		{"Beeline", p.Run.Version}, {"Mode", s.Mode}, {"Rounds asked for", fmt.Sprint(s.Rounds)},
		{"Seconds per sample", significant(s.Seconds)}, {"Placement", strings.Join(s.Placement, ", ")},
		{"MTU", fmt.Sprint(s.MTU)}, {"IPv6", map[bool]string{true: "yes", false: "no"}[s.IPv6]},
		{"Seed of the order", fmt.Sprint(p.Run.Seed)}, {"Schema", fmt.Sprint(p.Run.Schema)},
	} {
		if f.Value != "" && f.Value != "0" && f.Value != "0 CPUs," {
			p.Environment = append(p.Environment, f)
		}
	}
	p.Environment = append(p.Environment, clusterFacts(p.Run.Cluster)...)
	p.Sysctls, p.Tools = facts(e.Sysctls), facts(e.Tools)
	for name, present := range e.Features {
		p.Features = append(p.Features, feature{name, present})
	}
	slices.SortFunc(p.Features, func(a, b feature) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range v.run.Networks {
		var notes []string
		for _, f := range facts(c.Facts) {
			notes = append(notes, f.Name+": "+f.Value)
		}
		note := contenderNote{c, strings.Join(notes, " · ")}
		p.Contenders = append(p.Contenders, note)
		if c.Unsupported != "" {
			p.Missing = append(p.Missing, note)
		}
	}
	p.Commands = commands(v)
}

// facts sorts a map by name.
func facts(m map[string]string) []fact {
	list := make([]fact, 0, len(m))
	for name, value := range m {
		list = append(list, fact{name, value})
	}
	slices.SortFunc(list, func(a, b fact) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// commands lists one command line of each figure; the others differ in their addresses.
func commands(v *view) []commandLine {
	var list []commandLine
	for _, f := range v.figures {
		for _, s := range v.run.Samples {
			if f.figureKey == keyOf(s) && len(s.Command) > 0 {
				list = append(list, commandLine{f.Title + " · " + f.heading(), commandText(s.Command)})
				break
			}
		}
	}
	return list
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
