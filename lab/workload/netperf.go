package workload

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/wait"
)

// netperf is one test of netperf 2.7.
//
// Length: netperf takes whole seconds. Its timer is SIGALRM, whose handler ends the test, so this package
// gives it a timer that is too long and sends SIGALRM itself: samples of any length, timed by netperf, and
// parallel processes that end together. netperf installs the handler when the test begins, after its
// connections are made, which tells from outside when that is. The server's half of a TCP_CRR would wait in
// accept for its own timer for another four seconds; it gets the signal too.
//
// Rate: work ÷ elapsed time as netperf has them, both from its first to its last transaction. For parallel
// processes the sum of the work is divided by the longest interval; by how much intervals differ is recorded as skew.
type netperf struct {
	tool
	test    string
	options []string // of the test
	// transactions says that the test counts transactions instead of bytes.
	transactions bool
	// connections says that each transaction has a connection of its own.
	connections bool
}

var (
	stream128k = newNetperf("TCP_STREAM", "tcp_stream_128k", "TCP_STREAM, 128 KB sends",
		"One TCP connection, sends of 128 KB, socket buffers fixed at 1 MB (which the kernel doubles).", "-m", "128K", "-s", "1M", "-S", "1M")
	stream16k = newNetperf("TCP_STREAM", "tcp_stream_16k", "TCP_STREAM, 16 KB sends",
		"One TCP connection, netperf's defaults: sends of 16 KB, socket buffers sized by the kernel.")
	rr    = newNetperf("TCP_RR", "tcp_rr", "TCP_RR", "One byte there and one byte back on an open TCP connection, one after the other.")
	rr100 = newNetperf("TCP_RR", "tcp_rr_100", "TCP_RR, 100 bytes",
		"100 bytes there and 100 bytes back on an open TCP connection, one after the other.", "-r", "100,100")
	rr4k = newNetperf("TCP_RR", "tcp_rr_4k", "TCP_RR, 4 KB",
		"4096 bytes there and 4096 bytes back on an open TCP connection, one after the other.", "-r", "4K,4K")
	crr   = newNetperf("TCP_CRR", "tcp_crr", "TCP_CRR", "A new TCP connection for each transaction: connect, one byte there and back, close.")
	udpRR = newNetperf("UDP_RR", "udp_rr", "UDP_RR", "One byte there and one byte back over UDP, one after the other.")
)

func newNetperf(test, name, title, description string, options ...string) netperf {
	const pkg = "netperf, in non-free; `make deps` installs it"
	info := rate("netperf", name, title, description)
	if test == "TCP_STREAM" {
		info = throughput("netperf", name, title, "GB", description)
	}
	programs := [][2]string{{"netperf", pkg}, {netserver, pkg}}
	return netperf{tool{info: info, programs: programs}, test, options, test != "TCP_STREAM", test == "TCP_CRR"}
}

const (
	netserver = "netserver"
	// overrun is what netperf's own timer has beyond the wanted length.
	overrun = 5 * time.Second
	// lastTransaction is given to the client to finish before the server's half of a test is ended.
	lastTransaction = 10 * time.Millisecond
)

// selectors are the values asked of netperf, as its manual names them.
var selectors = strings.Join([]string{
	"THROUGHPUT", "THROUGHPUT_UNITS", "TRANSACTION_RATE", "LOCAL_SEND_CALLS", "LOCAL_BYTES_SENT", "REMOTE_BYTES_RECVD",
	"RT_LATENCY", "P50_LATENCY", "P90_LATENCY", "P99_LATENCY", "LOCAL_TRANSPORT_RETRANS", "REMOTE_TRANSPORT_RETRANS",
	"LSS_SIZE_END", "RSR_SIZE_END",
}, ",")

func (n netperf) Processes(cores int) []int { return slices.Compact([]int{1, cores}) }

func (n netperf) Seconds(wanted time.Duration) time.Duration { return wanted + 30*time.Millisecond }

func (n netperf) Serve(ctx context.Context, s *Servers, _ int) error {
	port := s.target.Ports.Netperf
	return s.start(ctx, netserver, s.listens(port), netserver, "-D", family(s.target.Address), "-p", strconv.Itoa(port))
}

// command is that of one of the parallel processes.
func (n netperf) command(r Request, process int) []string {
	timer := int(math.Ceil((r.Length + overrun).Seconds()))
	target := r.Server.Target()
	command := []string{"netperf", family(target.Address), "-H", target.Address.String(), "-p", strconv.Itoa(target.Ports.Netperf),
		"-t", n.test, "-l", strconv.Itoa(timer)}
	if n.transactions {
		command = append(command, "-j") // keeps the statistics that percentiles need
	}
	command = append(append(command, "--"), n.options...)
	if data := target.Ports.Data; len(data) > 0 {
		command = append(command, "-P", fmt.Sprintf(",%d", data[(r.Turn*r.Procs+process)%len(data)]))
	}
	return append(command, "-k", selectors)
}

func (n netperf) Run(ctx context.Context, r Request) (Outcome, error) {
	commands := make([][]string, r.Procs)
	for i := range commands {
		commands[i] = n.command(r, i)
	}
	out := Outcome{Command: commands[0]}
	ctx, cancel := context.WithTimeout(ctx, r.Length+2*overrun)
	defer cancel()
	g, err := newGroup(r.Client, commands)
	if err != nil {
		return out, err
	}
	g.release()
	g.untilHandled(ctx, syscall.SIGALRM)
	r.window(false)
	_ = wait.For(ctx, r.Length) // wait notices an ended context
	r.window(true)
	g.signal(syscall.SIGALRM)
	if n.connections {
		_ = wait.For(ctx, lastTransaction)
		r.Server.EndTests()
	}
	texts, err := g.wait(ctx)
	if err != nil {
		return out, err
	}
	out.Values, err = n.read(texts)
	return out, err
}

// read makes one outcome of the outputs of all processes.
func (n netperf) read(texts []string) (map[string]float64, error) {
	var work, longest, retransmits float64
	shortest := math.Inf(1)
	values := map[string]float64{}
	for _, text := range texts {
		p, err := parseNetperf(text)
		if err != nil {
			return nil, err
		}
		done, elapsed := n.work(p)
		if !(done > 0) || !(elapsed > 0) {
			return nil, fmt.Errorf("netperf %s did no work: %s", n.test, lastLines(text))
		}
		work, longest, shortest = work+done, max(longest, elapsed), min(shortest, elapsed)
		retransmits += max(p["LOCAL_TRANSPORT_RETRANS"], 0) + max(p["REMOTE_TRANSPORT_RETRANS"], 0)
		if len(texts) == 1 && n.transactions {
			values[result.RTT] = p["RT_LATENCY"]
			values[result.RTTP50], values[result.RTTP90], values[result.RTTP99] = p["P50_LATENCY"], p["P90_LATENCY"], p["P99_LATENCY"]
		}
		values[result.SendBuffer], values[result.ReceiveBuffer] = p["LSS_SIZE_END"], p["RSR_SIZE_END"]
	}
	if n.test != "UDP_RR" {
		values[result.Retransmits] = retransmits
	}
	if len(texts) > 1 {
		values[result.Skew] = longest - shortest
	}
	if n.transactions {
		values[result.Transactions], values[result.Rate] = work, work/longest
	} else {
		values[result.Bytes], values[result.Throughput] = work, work*8/longest/1e9
	}
	return values, nil
}

// work returns transactions or bytes, and the seconds they took. netperf prints elapsed time with two digits
// after the point only, so the seconds come from the work and its rate.
func (n netperf) work(p map[string]float64) (work, seconds float64) {
	if n.transactions {
		return p["LOCAL_SEND_CALLS"], p["LOCAL_SEND_CALLS"] / p["TRANSACTION_RATE"]
	}
	return p["LOCAL_BYTES_SENT"], p["LOCAL_BYTES_SENT"] * 8 / (p["THROUGHPUT"] * 1e6)
}

// parseNetperf reads key=value output. The error is what netperf said instead.
func parseNetperf(text string) (map[string]float64, error) {
	values := map[string]float64{}
	for _, line := range strings.Split(text, "\n") {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || key == "" || strings.ContainsAny(key, " :") {
			continue
		}
		if key == "THROUGHPUT_UNITS" {
			if value != "Trans/s" && value != "10^6bits/s" {
				return nil, fmt.Errorf("read netperf: throughput in unknown unit %q", value)
			}
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("read netperf: %s: %w", key, err)
		}
		values[key] = v
	}
	if _, ok := values["THROUGHPUT"]; !ok {
		return nil, fmt.Errorf("netperf gave no result: %s", lastLines(text))
	}
	return values, nil
}
