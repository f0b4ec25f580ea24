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

// figure is one column of the suite: of TCP, what a workload measures through the NodePort, or of packets, without one.
type figure struct {
	workload.Workload
	info result.Workload
	// sampler makes a sample of packets.
	sampler func(ctx context.Context, m *member, f figure, length time.Duration) (workload.Outcome, error)
	// published is the rate of the published study, in packets per second, that a figure of CPU time stands for.
	published float64
	// lengths is how many samples' lengths one of packets takes in all.
	lengths float64
}

const generatorTool = "live frames (BPF_PROG_TEST_RUN)"

var (
	saturation = figure{
		info: result.Workload{
			Name: "nodeport_saturation", Title: "NodePort, packets at saturation",
			Description: "The shortest UDP frames of many flows offered as fast as they can be; those that arrive per second.",
			Tool:        generatorTool, Metric: result.Rate, Unit: "/s", Better: "higher",
		},
		sampler: sampleSaturation, lengths: 1.6,
	}
	lossless = figure{
		info: result.Workload{
			Name: "nodeport_lossless", Title: "NodePort, packets with less than 0.1 % lost",
			Description: "The highest rate of the shortest UDP frames of which 99.9 % arrive, found by halving.",
			Tool:        generatorTool, Metric: result.Rate, Unit: "/s", Better: "higher",
		},
		sampler: sampleLossless, lengths: 10,
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
		sampler: sampleCPULeft, published: float64(millions) * 1e6, lengths: 1.3,
	}
}

func tcpFigure(tool, title string) figure {
	all := workload.All()
	w := all[slices.IndexFunc(all, func(w workload.Workload) bool { return w.Info().Name == tool })]
	f := figure{Workload: w, info: w.Info()}
	f.info.Name, f.info.Title = "nodeport_"+tool, title
	f.info.Description += " From outside of the cluster, through the NodePort."
	return f
}

// packets reports whether the figure counts packets; else it carries TCP.
func (f figure) packets() bool { return f.Workload == nil }

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
	if f.packets() {
		return ""
	}
	return f.Workload.Missing()
}

// Seconds is what a sample takes.
func (f figure) Seconds(wanted time.Duration) time.Duration {
	if !f.packets() {
		return f.Workload.Seconds(wanted)
	}
	const arranging = 250 * time.Millisecond
	return time.Duration(f.lengths*float64(wanted)) + arranging
}

// sample makes one sample.
func (f figure) sample(ctx context.Context, m *member, length time.Duration) (workload.Outcome, error) {
	if f.packets() {
		return f.sampler(ctx, m, f, length)
	}
	m.Turn++
	return f.Run(ctx, workload.Request{
		Client: m.Lab.Client().On(m.cores.measured), Server: viaNodePort{m.Servers[result.CrossNode], m}, Procs: 1, Length: length, Turn: m.Turn,
	})
}

func sampleSaturation(ctx context.Context, m *member, _ figure, length time.Duration) (workload.Outcome, error) {
	o, err := m.offer(ctx, packetgen.Load{For: length})
	return outcomeOf(o), err
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
		err = fmt.Errorf("more than %g %% is lost even at %.0f packets per second", lossBound*100, top.rate()/(1<<steps))
	}
	if err != nil {
		return workload.Outcome{}, err
	}
	return outcomeOf(best), nil
}

func sampleCPULeft(ctx context.Context, m *member, f figure, length time.Duration) (workload.Outcome, error) {
	asked := f.published * m.scale
	o, err := offered(ctx, asked, func() (outcome, error) { return m.offer(ctx, packetgen.Load{Rate: asked, For: length}) })
	if err != nil {
		return workload.Outcome{}, err
	}
	out := outcomeOf(o)
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

func outcomeOf(o outcome) workload.Outcome {
	return workload.Outcome{
		Values: map[string]float64{
			result.Rate: o.rate(), result.Offered: o.Rate(), result.Loss: 100 * o.loss(), result.Messages: float64(o.arrived),
		},
		Seconds: o.Took.Seconds(),
	}
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
