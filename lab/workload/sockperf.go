package workload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// sockperf is ping-pong over TCP with full round trips (without --full-rtt sockperf prints half of them).
// All round trips come from its log, so percentiles are exact and can be merged over rounds. It takes whole
// seconds, of which it leaves out the first 0.4 s and the last 50 ms, after a second of calibrating its clock.
type sockperf struct{ tool }

var sockperfTCP = sockperf{tool{
	info: result.Workload{
		Name: "sockperf_tcp", Title: "sockperf ping-pong, TCP",
		Description: "14 bytes there and back on an open TCP connection; the mean of full round trips, and percentiles of all of them.",
		Tool:        "sockperf", Metric: result.RTT, Unit: "µs", Better: "lower",
	},
	programs: [][2]string{{"sockperf", "sockperf"}}, ipv4Only: "sockperf 3.7 has no IPv6",
	start: 1300 * time.Millisecond, margin: 450 * time.Millisecond,
}}

func (sockperf) Serve(ctx context.Context, s *Servers, _ int) error {
	port := s.target.Ports.Sockperf
	return s.start(ctx, "sockperf server", s.listens(port),
		"sockperf", "server", "--tcp", "-i", s.target.Address.String(), "-p", strconv.Itoa(port))
}

func (w sockperf) Run(ctx context.Context, r Request) (Outcome, error) {
	dir, err := os.MkdirTemp("", "beeline-sockperf-")
	if err != nil {
		return Outcome{}, fmt.Errorf("keep sockperf's log: %w", err)
	}
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "log.csv")
	seconds, target := w.whole(r.Length), r.Server.Target()
	command := []string{"sockperf", "ping-pong", "--tcp", "--full-rtt", "-i", target.Address.String(), "-p", strconv.Itoa(target.Ports.Sockperf),
		"-t", strconv.Itoa(seconds), "--full-log", log}
	out := Outcome{Command: command}
	texts, err := r.run(ctx, w.start+time.Duration(seconds)*time.Second+overrun, command)
	if err != nil {
		return out, err
	}
	f, err := os.Open(log)
	if err != nil {
		return out, fmt.Errorf("sockperf gave no log: %s", lastLines(texts[0]))
	}
	defer f.Close()
	trips, err := parseSockperf(f)
	if err != nil {
		return out, fmt.Errorf("%w: %s", err, lastLines(texts[0]))
	}
	sum := 0.0
	for _, t := range trips {
		sum += t
	}
	out.Latency = stats.HistogramOf(trips)
	out.Values = map[string]float64{
		result.Messages: float64(len(trips)), result.RTT: sum / float64(len(trips)),
		result.RTTP50: stats.Quantile(trips, 0.5), result.RTTP90: stats.Quantile(trips, 0.9),
		result.RTTP99: stats.Quantile(trips, 0.99), result.RTTP999: stats.Quantile(trips, 0.999),
	}
	return out, nil
}

// parseSockperf reads the round trips, in µs, of a full log: lines of packet number, sent, received, round trip.
func parseSockperf(r io.Reader) ([]float64, error) {
	var trips []float64
	half := true
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasSuffix(line, "rtt(usec)") { // else latency(usec), which is half
			half = false
		}
		f := strings.Split(line, ",")
		if len(f) != 4 || strings.Trim(f[0], " 0123456789") != "" {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(f[3]), 64)
		if err != nil {
			return nil, fmt.Errorf("read sockperf's log: %w", err)
		}
		trips = append(trips, v)
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, fmt.Errorf("read sockperf's log: %w", err)
	case len(trips) == 0:
		return nil, errors.New("sockperf observed nothing")
	case half:
		return nil, errors.New("sockperf's log has half round trips")
	}
	return trips, nil
}
