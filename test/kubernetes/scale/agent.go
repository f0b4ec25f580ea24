package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// agent is the program that is measured.
type agent struct {
	cmd *exec.Cmd
}

func startAgent(ctx context.Context, o options, s *server) (*agent, error) {
	at := func(name string) string { return filepath.Join(o.dir, name) }
	log, err := os.Create(at("agent.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, o.beeline, "agent", "--node-name", nodeName(0), "--kubeconfig", s.kubeconfig,
		"--socket", at("agent.sock"), "--state-dir", at("state"), "--bpffs", at("bpf/beeline"), "--tunnel", "none")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &agent{cmd}, nil
}

// measure prints what it finds.
func (a *agent) measure(ctx context.Context, o options, s *server) error {
	begin := time.Now()
	if err := waitFor(ctx, time.Minute, func() error { return a.knows(o) }); err != nil {
		return fmt.Errorf("wait for the agent: %w\n%s", err, tail(filepath.Join(o.dir, "agent.log")))
	}
	fmt.Printf("start until everything is known and in force: %.2f s\n", time.Since(begin).Seconds())
	if err := a.printMemory(o.maxRSS); err != nil {
		return err
	}
	routes, err := followRoutes(ctx)
	if err != nil {
		return err
	}
	nodes, err := timeNodes(ctx, o, s, routes)
	if err != nil {
		return err
	}
	print("a node appears until its route is in the kernel", nodes)
	before, err := a.metrics()
	if err != nil {
		return err
	}
	pods, err := timePods(ctx, o, s)
	if err != nil {
		return err
	}
	print("a pod changes until it is in a snapshot", pods)
	after, err := a.metrics()
	if err != nil {
		return err
	}
	printHistogram(before, after)
	cpu, err := a.cpu()
	if err != nil {
		return err
	}
	const rest = 60 * time.Second
	time.Sleep(rest)
	idle, err := a.cpu()
	if err != nil {
		return err
	}
	fmt.Printf("CPU while nothing happens: %.2f %% of a core\n", 100*(idle-cpu).Seconds()/rest.Seconds())
	return a.printMemory(o.maxRSS)
}

// knows tells whether the agent has taken in everything.
func (a *agent) knows(o options) error {
	m, err := a.metrics()
	if err != nil {
		return err
	}
	for kind, want := range map[string]int{"Node": o.nodes, "Pod": o.pods, "Service": services, "NetworkPolicy": policies} {
		if got := m[fmt.Sprintf(`beeline_cluster_objects{kind="%s"}`, kind)]; int(got) < want {
			return fmt.Errorf("the agent knows %v objects of kind %s, want %d", got, kind, want)
		}
	}
	if m["beeline_ready"] != 1 {
		return errors.New("the agent is not ready")
	}
	return nil
}

var sample = regexp.MustCompile(`(?m)^([a-z_]+(?:\{[^}]*\})?) (\S+)$`)

// metrics reads what the agent serves.
func (a *agent) metrics() (map[string]float64, error) {
	response, err := http.Get("http://127.0.0.1:9965/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for _, m := range sample.FindAllStringSubmatch(string(text), -1) {
		if all[m[1]], err = strconv.ParseFloat(m[2], 64); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// printMemory prints the agent's memory, now and at its peak.
func (a *agent) printMemory(limit int) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		return err
	}
	var peak int
	var parts []string
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "VmHWM" && name != "VmRSS" && name != "RssAnon" && name != "RssFile" {
			continue
		}
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		if err != nil {
			return err
		}
		parts = append(parts, fmt.Sprintf("%s %.1f MiB", name, float64(kib)/1024))
		if name == "VmHWM" {
			peak = kib / 1024
		}
	}
	fmt.Println("memory:", strings.Join(parts, ", "))
	if limit > 0 && peak > limit {
		return fmt.Errorf("the agent took %d MiB at its peak, more than %d", peak, limit)
	}
	return nil
}

// cpu is the time that the agent has been running.
func (a *agent) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// After the name in brackets: state is field 3, utime and stime are 14 and 15, in hundredths of a second.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// followRoutes tells of each route that the kernel gets, with the time. The agent writes the datapath's table before.
func followRoutes(ctx context.Context) (<-chan routeEvent, error) {
	cmd := exec.CommandContext(ctx, "ip", "-4", "monitor", "route")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	events := make(chan routeEvent, 1000)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if fields := strings.Fields(lines.Text()); len(fields) > 0 {
				events <- routeEvent{fields[0], time.Now()}
			}
		}
	}()
	time.Sleep(200 * time.Millisecond) // it has begun to listen by then
	return events, nil
}

type routeEvent struct {
	to string
	at time.Time
}
