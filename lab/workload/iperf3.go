package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/wait"
)

// iperf3 before 3.16 has one thread for all streams, so N streams are N processes on N ports. It takes
// whole seconds, and its own figure of CPU time is that of its process only and not used.

// iperf is what workloads of iperf3 have in common.
type iperf struct{ tool }

func newIperf(name, title, work, description string) iperf {
	return iperf{tool{
		info: throughput("iperf3", name, title, work, description), programs: [][2]string{{"iperf3", "iperf3"}}, start: 100 * time.Millisecond,
	}}
}

func (iperf) Serve(ctx context.Context, s *Servers, procs int) error {
	ports := s.target.Ports.Iperf
	if procs > len(ports) {
		return fmt.Errorf("start iperf3: %d processes want as many ports, there are %d", procs, len(ports))
	}
	for _, port := range ports[:procs] {
		err := s.start(ctx, fmt.Sprintf("iperf3 server on port %d", port), s.listens(port), "iperf3", "-s", "-p", strconv.Itoa(port))
		if err != nil {
			return err
		}
	}
	return nil
}

// clients runs one client for each process and returns their reports.
func (w iperf) clients(ctx context.Context, r Request, options ...string) ([]string, []iperfReport, error) {
	seconds := w.whole(r.Length)
	target := r.Server.Target()
	if r.Procs > len(target.Ports.Iperf) {
		return nil, nil, fmt.Errorf("run iperf3: %d processes want as many ports, there are %d", r.Procs, len(target.Ports.Iperf))
	}
	commands := make([][]string, r.Procs)
	for i := range commands {
		commands[i] = append([]string{"iperf3", family(target.Address), "-c", target.Address.String(),
			"-p", strconv.Itoa(target.Ports.Iperf[i]), "-t", strconv.Itoa(seconds), "-J"}, options...)
	}
	for attempt := 1; ; attempt++ {
		texts, err := r.run(ctx, time.Duration(seconds)*time.Second+2*overrun, commands...)
		reports, parseErr := parseIperfs(texts)
		if parseErr != nil {
			err = parseErr // says more than the exit code
		}
		if !errors.Is(err, errIperfBusy) || attempt == iperfAttempts {
			return commands[0], reports, err
		}
		_ = wait.For(ctx, iperfClosing)
	}
}

// A server that still closes its last test rejects the next one; that happens on busy machines.
const (
	iperfAttempts = 4
	iperfClosing  = 250 * time.Millisecond
)

var errIperfBusy = errors.New("iperf3: the server is busy running a test")

// iperfSum is a total in iperf3's JSON output.
type iperfSum struct {
	Seconds     float64 `json:"seconds"`
	Bytes       float64 `json:"bytes"`
	Retransmits float64 `json:"retransmits"`
	Packets     float64 `json:"packets"`
	LostPackets float64 `json:"lost_packets"`
}

// iperfReport is what is read of iperf3's JSON output.
type iperfReport struct {
	Start struct {
		SendBuffer    float64 `json:"sndbuf_actual"`
		ReceiveBuffer float64 `json:"rcvbuf_actual"`
	} `json:"start"`
	End struct {
		Sent     iperfSum `json:"sum_sent"`
		Received iperfSum `json:"sum_received"`
	} `json:"end"`
	Error string `json:"error"`
}

func parseIperfs(texts []string) (reports []iperfReport, err error) {
	for _, text := range texts {
		report, err := parseIperf(text)
		if err != nil {
			return nil, err
		}
		reports = append(reports, report)
	}
	return reports, nil
}

func parseIperf(text string) (iperfReport, error) {
	var report iperfReport
	// Warnings may stand before the report.
	if err := json.Unmarshal([]byte(text[max(0, strings.Index(text, "{")):]), &report); err != nil {
		return report, fmt.Errorf("read iperf3's report: %w: %s", err, lastLines(text))
	}
	if strings.Contains(report.Error, "server is busy") {
		return report, errIperfBusy
	}
	if report.Error != "" {
		return report, fmt.Errorf("iperf3: %s", report.Error)
	}
	if report.End.Received.Seconds <= 0 || report.End.Received.Bytes <= 0 {
		return report, fmt.Errorf("iperf3: nothing arrived")
	}
	return report, nil
}

// iperfTCP is bulk transfer with one connection for each process.
type iperfTCP struct{ iperf }

var iperfOverTCP = iperfTCP{newIperf("iperf3_tcp", "iperf3 TCP", "GB",
	"One TCP connection for each process, 128 KB sends, buffers sized by the kernel; what arrived.")}

func (iperfTCP) Processes(int) []int { return []int{1, 2, 4} }

func (w iperfTCP) Run(ctx context.Context, r Request) (Outcome, error) {
	command, reports, err := w.clients(ctx, r)
	if err != nil {
		return Outcome{Command: command}, err
	}
	return Outcome{Command: command, Values: iperfTCPValues(reports), Seconds: iperfLongest(reports)}, nil
}

func iperfLongest(reports []iperfReport) (seconds float64) {
	for _, r := range reports {
		seconds = max(seconds, r.End.Received.Seconds)
	}
	return seconds
}

func iperfTCPValues(reports []iperfReport) map[string]float64 {
	var bytes, retransmits float64
	longest, shortest := iperfLongest(reports), math.Inf(1)
	for _, r := range reports {
		bytes += r.End.Received.Bytes
		retransmits += r.End.Sent.Retransmits
		shortest = min(shortest, r.End.Received.Seconds)
	}
	values := map[string]float64{
		result.Bytes: bytes, result.Throughput: bytes * 8 / longest / 1e9, result.Retransmits: retransmits,
	}
	if len(reports) > 1 {
		values[result.Skew] = longest - shortest
	}
	return values
}

// iperfUDP sends messages that fit every network's MTU, with a fixed socket buffer, at a fixed rate.
type iperfUDP struct {
	iperf
	rate string
}

func newIperfUDP(name, rate, title, description string) iperfUDP {
	return iperfUDP{newIperf(name, title, "message", description), rate}
}

// udpMessage is the payload: 1350 bytes fit into the 1450 bytes that VXLAN leaves, with IPv6 headers too.
const udpMessage = "1350"

func (u iperfUDP) Run(ctx context.Context, r Request) (Outcome, error) {
	command, reports, err := u.clients(ctx, r, "-u", "-b", u.rate, "-l", udpMessage, "-w", "1M")
	if err != nil {
		return Outcome{Command: command}, err
	}
	return Outcome{Command: command, Values: iperfUDPValues(reports[0]), Seconds: iperfLongest(reports)}, nil
}

// iperfUDPValues takes loss as what was sent and did not arrive: iperf3's own lost_packets counts gaps
// in the sequence and misses what was lost at the end.
func iperfUDPValues(r iperfReport) map[string]float64 {
	received, sent := r.End.Received, r.End.Sent
	return map[string]float64{
		result.Bytes: received.Bytes, result.Messages: received.Packets - received.LostPackets,
		result.Throughput: received.Bytes * 8 / received.Seconds / 1e9,
		result.Loss:       100 * (1 - received.Bytes/sent.Bytes),
		result.SendBuffer: r.Start.SendBuffer, result.ReceiveBuffer: r.Start.ReceiveBuffer,
	}
}
