// Package workload runs the tools that make traffic, one file for each tool, and reads what they say.
// What is measured, when and in which order is package round's business.
package workload

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Workload is one tool with one set of arguments.
type Workload interface {
	// Info describes the workload in the result file.
	Info() result.Workload
	// Missing is empty, or says which program is not installed.
	Missing() string
	// IPv4Only is empty, or says why there is no IPv6.
	IPv4Only() string
	// Processes are the numbers of parallel processes that a full run has, on a machine with so many
	// cores; a workload that knows only one process gives just 1.
	Processes(cores int) []int
	// Seconds is how long a sample of about the wanted length takes in all, for planning.
	Seconds(wanted time.Duration) time.Duration
	// Serve starts the servers for up to procs processes.
	Serve(ctx context.Context, s *Servers, procs int) error
	// Run makes one sample.
	Run(ctx context.Context, r Request) (Outcome, error)
}

// tool is what most workloads have in common: a description, the programs that have to be installed, and one process.
type tool struct {
	info result.Workload
	// programs are names with the Debian package of each.
	programs [][2]string
	ipv4Only string
	// start is what a sample takes before the traffic, margin what the tool leaves out of its own run time.
	start, margin time.Duration
}

func (t tool) Info() result.Workload { return t.info }

func (t tool) Missing() string {
	for _, p := range t.programs {
		if _, err := exec.LookPath(p[0]); err != nil {
			return fmt.Sprintf("not installed: %s (Debian package %s)", p[0], p[1])
		}
	}
	return ""
}

func (t tool) IPv4Only() string { return t.ipv4Only }

func (tool) Processes(int) []int { return []int{1} }

// whole is the run time for a sample of about the wanted length, of a tool that takes whole seconds.
func (t tool) whole(wanted time.Duration) int { return int(math.Ceil((wanted + t.margin).Seconds())) }

func (t tool) Seconds(wanted time.Duration) time.Duration {
	return time.Duration(t.whole(wanted))*time.Second + t.start
}

// rate is the description of a workload of a tool that counts transactions.
func rate(tool, name, title, description string) result.Workload {
	return result.Workload{Name: name, Title: title, Description: description, Tool: tool, Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"}
}

// throughput is the description of a workload of a tool that counts bytes, with their unit of work.
func throughput(tool, name, title, work, description string) result.Workload {
	return result.Workload{Name: name, Title: title, Description: description, Tool: tool, Metric: result.Throughput, Unit: "Gbit/s", Better: "higher", Work: work}
}

// Request describes one sample.
type Request struct {
	// Client is where the client processes run.
	Client testbed.Netns
	Server Server
	Procs  int
	Length time.Duration
	// Turn counts the samples between the two ends, where the target has ports for netperf's data.
	Turn int
	// Window is called when the measured traffic starts and with true when it ends, from one goroutine; again
	// where an attempt is repeated: the last pair counts. It may be nil.
	Window func(end bool)
}

func (r Request) window(end bool) {
	if r.Window != nil {
		r.Window(end)
	}
}

// run runs processes that make the measured traffic, for up to a limit, and returns what each wrote.
func (r Request) run(ctx context.Context, limit time.Duration, commands ...[]string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g, err := newGroup(r.Client, commands)
	if err != nil {
		return nil, err
	}
	r.window(false)
	g.release()
	texts, err := g.wait(ctx)
	r.window(true)
	return texts, err
}

// Outcome is what one sample gave.
type Outcome struct {
	// Values are named as in package result.
	Values  map[string]float64
	Latency *result.Histogram
	// Seconds is how long the traffic lasted, of tools whose window includes setting up as well; else 0.
	Seconds float64
	// Command is what was run; of parallel processes, the first.
	Command []string
}

// All are the workloads of this project in the order in which tables show them.
func All() []Workload {
	return []Workload{
		stream128k, stream16k, rr, rr100, rr4k, crr, udpRR,
		sockperfTCP, iperfOverTCP,
		newIperfUDP("udp_1g", "1G", "UDP at 1 Gbit/s", "1350-byte messages offered at 1 Gbit/s in bursts of 1 ms; what arrives and what is lost."),
		newIperfUDP("udp_max", "0", "UDP as fast as it goes", "1350-byte messages sent without a limit; what arrives and what is lost."),
		redisGet, redisSet, httpKeepAlive, httpClose,
	}
}

// Names are those of All.
func Names() []string {
	var names []string
	for _, w := range All() {
		names = append(names, w.Info().Name)
	}
	return names
}

// Select returns the workloads of these names in the order of All; all of them for no names.
func Select(names []string) ([]Workload, error) {
	if len(names) == 0 {
		return All(), nil
	}
	var list []Workload
	for _, w := range All() {
		if slices.Contains(names, w.Info().Name) {
			list = append(list, w)
		}
	}
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("no workload %q; there are: %s", name, strings.Join(Names(), ", "))
		}
	}
	return list, nil
}

func family(a netip.Addr) string {
	if a.Is4() || a.Is4In6() {
		return "-4"
	}
	return "-6"
}
