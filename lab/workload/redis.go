package workload

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
)

// redis is one command of redis-benchmark with values of 1000 bytes over its usual 50 connections. The tool takes a
// number of requests, of which its own hundred thousand last no longer than a second: a short run before each sample
// shows how many a sample needs. That run also stores the value that the sample gets.
type redis struct {
	tool
	command string
}

var (
	redisGet = newRedis("GET", "50 connections ask a key-value store for a value of 1000 bytes, each waiting for the answer before the next request.")
	redisSet = newRedis("SET", "50 connections store a value of 1000 bytes in a key-value store, each waiting for the answer before the next request.")
)

func newRedis(command, description string) redis {
	info := rate("redis-benchmark", "redis_"+strings.ToLower(command), "redis-benchmark "+command+", 1000 bytes", description)
	return redis{tool{info: info, programs: [][2]string{{"redis-benchmark", "redis-tools"}, {"redis-server", "redis-server"}}}, command}
}

const (
	// redisSample is the least that a sample of a tool counts that starts its clock when it starts connecting.
	redisSample = 2 * time.Second
	// redisTrial is how many requests the run before has.
	redisTrial = 10000
	// redisTrialTime is how long that run and the ends of both take, about.
	redisTrialTime = 500 * time.Millisecond
)

func (redis) Seconds(wanted time.Duration) time.Duration {
	return max(wanted, redisSample) + redisTrialTime
}

func (redis) Serve(ctx context.Context, s *Servers, _ int) error {
	port := s.target.Ports.Redis
	// It keeps nothing on a disk and serves every client.
	return s.start(ctx, "redis-server", s.listens(port), "redis-server", "--port", strconv.Itoa(port), "--bind", s.target.Address.String(),
		"--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no", "--dir", "/tmp")
}

func (redis) arguments(r Request, commands string, requests int) []string {
	t := r.Server.Target()
	return []string{"redis-benchmark", "-h", t.Address.String(), "-p", strconv.Itoa(t.Ports.Redis),
		"-t", commands, "-d", "1000", "-n", strconv.Itoa(requests), "--csv"}
}

func (w redis) Run(ctx context.Context, r Request) (Outcome, error) {
	length := max(r.Length, redisSample)
	before := r
	before.Window = nil
	texts, err := before.run(ctx, overrun, w.arguments(r, "set,get", redisTrial))
	if err != nil {
		return Outcome{}, err
	}
	trial, err := parseRedis(texts[0], w.command)
	if err != nil {
		return Outcome{}, err
	}
	requests := max(redisTrial, int(trial[result.Rate]*length.Seconds()))
	out := Outcome{Command: w.arguments(r, strings.ToLower(w.command), requests)}
	if texts, err = r.run(ctx, 5*length+overrun, out.Command); err != nil {
		return out, err
	}
	if out.Values, err = parseRedis(texts[0], w.command); err != nil {
		return out, err
	}
	out.Values[result.Transactions] = float64(requests)
	out.Seconds = float64(requests) / out.Values[result.Rate]
	return out, nil
}

// parseRedis reads the row of a command in the CSV of redis-benchmark 7, whose times are in ms.
func parseRedis(text, command string) (map[string]float64, error) {
	lines := strings.Split(text, "\n")
	for len(lines) > 0 && !strings.HasPrefix(lines[0], `"test"`) { // warnings come first
		lines = lines[1:]
	}
	rows, err := csv.NewReader(strings.NewReader(strings.Join(lines, "\n"))).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read redis-benchmark: %w", err)
	}
	const usPerMs = 1000
	columns := map[string]struct {
		metric string
		factor float64
	}{
		"rps": {result.Rate, 1}, "avg_latency_ms": {result.RTT, usPerMs}, "p50_latency_ms": {result.RTTP50, usPerMs}, "p99_latency_ms": {result.RTTP99, usPerMs},
	}
	for _, row := range rows {
		if row[0] != command {
			continue
		}
		values := map[string]float64{}
		for i, name := range rows[0] {
			if c, ok := columns[name]; ok {
				v, err := strconv.ParseFloat(row[i], 64)
				if err != nil {
					return nil, fmt.Errorf("read redis-benchmark: %s: %w", name, err)
				}
				values[c.metric] = v * c.factor
			}
		}
		if values[result.Rate] > 0 {
			return values, nil
		}
	}
	return nil, fmt.Errorf("redis-benchmark gave no rate of %s: %s", command, lastLines(text))
}
