package nodeport

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/workload"
)

// figure is one column of the suite. It fulfils workload.Workload for planning and describing; samples are made by
// sample, with the member that they need.
type figure struct {
	info   result.Workload
	sample func(ctx context.Context, m *member, f figure, length time.Duration) (workload.Outcome, error)
	// published is the rate of the published study, in packets per second, that a figure of CPU time stands for.
	published float64
	// lengths is how many samples' lengths one takes in all.
	lengths float64
	// packets says that the figure counts packets; else it carries TCP.
	packets bool
	// tool is what carries TCP.
	tool workload.Workload
}

const generatorTool = "live frames (BPF_PROG_TEST_RUN)"

var (
	saturation = figure{
		info: result.Workload{
			Name: "nodeport_saturation", Title: "NodePort, packets at saturation",
			Description: "The shortest UDP frames of many flows offered as fast as they can be; those that arrive per second.",
			Tool:        generatorTool, Metric: result.Rate, Unit: "/s", Better: "higher",
		},
		sample: sampleSaturation, lengths: 1.6, packets: true,
	}
	lossless = figure{
		info: result.Workload{
			Name: "nodeport_lossless", Title: "NodePort, packets with less than 0.1 % lost",
			Description: "The highest rate of the shortest UDP frames of which 99.9 % arrive, found by halving.",
			Tool:        generatorTool, Metric: result.Rate, Unit: "/s", Better: "higher",
		},
		sample: sampleLossless, lengths: 9, packets: true,
	}
	connections = tcpFigure("tcp_crr", "NodePort, new connections")
	requests    = tcpFigure("tcp_rr", "NodePort, TCP_RR")
	// applications are measured by a full run, and by their names.
	applications = []figure{
		tcpFigure("redis_get", "NodePort, redis-benchmark GET, 1000 bytes"), tcpFigure("redis_set", "NodePort, redis-benchmark SET, 1000 bytes"),
		tcpFigure("http_keepalive", "NodePort, HTTP, kept alive"), tcpFigure("http_close", "NodePort, HTTP, Connection: close"),
	}
)

// cpuLeft is the figure for one of the published study's rates, in millions.
func cpuLeft(millions int) figure {
	return figure{
		info: result.Workload{
			Name: fmt.Sprintf("nodeport_cpu_%dm", millions), Title: fmt.Sprintf("NodePort, CPU left at %d Mpps, scaled", millions),
			Description: fmt.Sprintf("Share of the forwarding node's CPU that is left while the shortest UDP frames come at the rate that is here what %d million per second are to the 10 million of the published study.", millions),
			Tool:        generatorTool, Metric: result.CPULeft, Unit: "%", Better: "higher",
		},
		sample: sampleCPULeft, published: float64(millions) * 1e6, lengths: 1.3, packets: true,
	}
}

func tcpFigure(tool, title string) figure {
	f := figure{sample: sampleTCP}
	for _, w := range workload.All() {
		if w.Info().Name == tool {
			f.tool = w
		}
	}
	f.info = f.tool.Info()
	f.info.Name, f.info.Title = "nodeport_"+tool, title
	f.info.Description += " From outside of the cluster, through the NodePort."
	return f
}

// Figures are the names of the figures of this bench.
func Figures() []string {
	var names []string
	for _, c := range cells() {
		if name := c.Workload.Info().Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// cells are all figures in the order in which a network's samples are made: those of one placement together.
func cells() []round.Cell {
	var list []round.Cell
	add := func(p result.Placement, figures ...figure) {
		for _, f := range figures {
			list = append(list, round.Cell{Workload: f, Path: result.CrossNode, Placement: p, Procs: 1})
		}
	}
	add(result.ForwarderCore, saturation, lossless, cpuLeft(1), cpuLeft(2), cpuLeft(4))
	add(result.OneCore, saturation, requests, connections)
	add(result.OneCore, applications...)
	return list
}

// Info describes the figure.
func (f figure) Info() result.Workload { return f.info }

// chosen reports whether a run has the figure: by its name, or without any names; then only a full run has
// applications.
func (f figure) chosen(names []string, full bool) bool {
	if len(names) == 0 {
		return full || !slices.ContainsFunc(applications, func(a figure) bool { return a.info.Name == f.info.Name })
	}
	return slices.Contains(names, f.info.Name)
}

// Missing names the tool that is not installed.
func (f figure) Missing() string {
	if f.tool != nil {
		return f.tool.Missing()
	}
	return ""
}

// IPv4Only is empty: frames and tools are of either family.
func (figure) IPv4Only() string { return "" }

// Processes are one.
func (figure) Processes(int) []int { return []int{1} }

// Seconds is what a sample takes.
func (f figure) Seconds(wanted time.Duration) time.Duration {
	if f.tool != nil {
		return f.tool.Seconds(wanted)
	}
	const arranging = 250 * time.Millisecond
	return time.Duration(f.lengths*float64(wanted)) + arranging
}

// Serve returns an error: a figure needs a member, which only this suite has.
func (figure) Serve(context.Context, *workload.Servers, int) error { return errOther }

// Run is like Serve.
func (figure) Run(context.Context, workload.Request) (workload.Outcome, error) {
	return workload.Outcome{}, errOther
}

func sampleSaturation(ctx context.Context, m *member, _ figure, length time.Duration) (workload.Outcome, error) {
	o, err := m.offer(ctx, packetgen.Load{For: length})
	return outcomeOf(o, o.rate()), err
}

func sampleLossless(ctx context.Context, m *member, _ figure, length time.Duration) (workload.Outcome, error) {
	top, err := m.offer(ctx, packetgen.Load{For: length / 2})
	if err != nil {
		return workload.Outcome{}, err
	}
	var best outcome
	rate, err := search(ctx, top.rate(), func(rate float64) (float64, error) {
		o, err := m.offer(ctx, packetgen.Load{Rate: rate, For: length / 2})
		if err == nil && o.loss() <= lossBound && o.rate() > best.rate() {
			best = o
		}
		return o.loss(), err
	})
	if err == nil && rate == 0 {
		err = fmt.Errorf("more than %g %% is lost even at %.0f packets per second", lossBound*100, top.rate()*lowest/(1<<lowered))
	}
	if err != nil {
		return workload.Outcome{}, err
	}
	return outcomeOf(best, best.rate()), nil
}

func sampleCPULeft(ctx context.Context, m *member, f figure, length time.Duration) (workload.Outcome, error) {
	asked := f.published * m.scale
	o, err := offered(ctx, asked, func() (outcome, error) { return m.offer(ctx, packetgen.Load{Rate: asked, For: length}) })
	if err != nil {
		return workload.Outcome{}, err
	}
	out := outcomeOf(o, o.rate())
	out.Values[result.CPULeft] = 100 * o.left()
	return out, nil
}

// leastOffered is the share of a fixed rate that the generator has to make.
const leastOffered = 0.97

// offered offers a fixed rate until the generator makes it, or has failed several times. A lower rate would leave more
// of the CPU and say nothing about the network.
func offered(ctx context.Context, asked float64, offer func() (outcome, error)) (o outcome, err error) {
	for range tries {
		if err := ctx.Err(); err != nil {
			return o, err
		}
		if o, err = offer(); err != nil || o.Rate() >= asked*leastOffered {
			return o, err
		}
	}
	return o, fmt.Errorf("the generator made less than %.0f %% of %.0f packets per second, %d times: its CPU was busy with something else", 100*leastOffered, asked, tries)
}

func outcomeOf(o outcome, rate float64) workload.Outcome {
	return workload.Outcome{
		Values: map[string]float64{
			result.Rate: rate, result.Offered: o.Rate(), result.Loss: 100 * o.loss(), result.Messages: float64(o.arrived),
		},
		Seconds: o.Took.Seconds(),
	}
}

func sampleTCP(ctx context.Context, m *member, f figure, length time.Duration) (workload.Outcome, error) {
	m.Turn++
	return f.tool.Run(ctx, workload.Request{
		Client: m.Lab.Client().On(m.cores.measured), Server: viaNodePort{m.Servers[result.CrossNode], m}, Procs: 1, Length: length, Turn: m.Turn,
	})
}

// viaNodePort are the pod's servers as a client outside finds them.
type viaNodePort struct {
	*workload.Servers
	member *member
}

// Target is the NodePort.
func (v viaNodePort) Target() workload.Target {
	return workload.Target{Address: v.member.target(0, 0).Addr(), Ports: tcpPorts()}
}
