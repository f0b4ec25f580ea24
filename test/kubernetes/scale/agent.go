package main

import (
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
	"time"

	"github.com/prometheus/procfs"
)

// agent is the agent under test.
type agent struct {
	cmd    *exec.Cmd
	o      *options
	server *server
}

// startAgent starts the agent of node 0. Nodes on other links are reached by tunnels.
func startAgent(ctx context.Context, o *options, s *server) (*agent, error) {
	at := func(name string) string { return filepath.Join(o.dir, name) }
	log, err := os.Create(at("agent.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, o.agent, "run", "--node-name", nodeName(0), "--kubeconfig", s.kubeconfig,
		"--socket", at("agent.sock"), "--state-dir", at("state"), "--bpffs", at("bpf/beeline"), "--cgroup", o.cgroup)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &agent{cmd, o, s}, nil
}

// synced returns an error until the agent has applied everything.
func (a *agent) synced() error {
	m, err := a.metrics()
	if err != nil {
		return err
	}
	for kind, want := range map[string]int{"Node": a.o.nodes, "Pod": a.o.pods, "Service": a.o.services, "NetworkPolicy": a.o.policies} {
		if got := m[fmt.Sprintf(`beeline_cluster_objects{kind="%s"}`, kind)]; int(got) < want {
			return fmt.Errorf("the agent knows %v objects of kind %s, want %d", got, kind, want)
		}
	}
	for _, name := range []string{"beeline_ready", "beeline_services_synced", "beeline_policy_synced"} {
		if m[name] != 1 {
			return fmt.Errorf("%s is %v", name, m[name])
		}
	}
	return nil
}

var sample = regexp.MustCompile(`(?m)^([a-z_]+(?:\{[^}]*\})?) (\S+)$`)

// metrics reads the agent's metrics.
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

// profile saves a profile of the agent, if requested. Release builds serve none.
func (a *agent) profile(name, query string) {
	if a.o.profiles == "" {
		return
	}
	response, err := http.Get("http://127.0.0.1:6060/debug/pprof/" + query)
	if err != nil {
		a.o.say("no profile: %v", err)
		return
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = os.WriteFile(filepath.Join(a.o.profiles, name), text, 0o644)
	}
	if err != nil {
		a.o.say("no profile: %v", err)
	}
}

// memory is the agent's memory in MiB: the peak since the last call, the current value, and that without its program
// file.
type memory struct{ peak, rss, anonymous float64 }

func (a *agent) memory() (m memory, err error) {
	pid := a.cmd.Process.Pid
	process, err := procfs.NewProc(pid)
	if err != nil {
		return m, err
	}
	status, err := process.NewStatus()
	if err != nil {
		return m, err
	}
	m = memory{peak: float64(status.VmHWM) / mib, rss: float64(status.VmRSS) / mib, anonymous: float64(status.RssAnon) / mib}
	// 5: reset the peak (proc(5), clear_refs).
	return m, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// cpu is the agent's CPU time.
func (a *agent) cpu() (time.Duration, error) {
	process, err := procfs.NewProc(a.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

// makeCgroup creates a cgroup v2 of its own: the agent's programs must not affect other processes.
func makeCgroup(name string) (string, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.FSType == "cgroup2" {
			path := filepath.Join(m.MountPoint, name)
			return path, os.Mkdir(path, 0o755)
		}
	}
	return "", errors.New("no file system of type cgroup2 is mounted")
}
