package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/prometheus/procfs"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// agent is the agent under test.
type agent struct {
	*testbed.Process
	o       *options
	server  *server
	network plugin.Network
}

// startAgent starts the agent of node 0. Nodes on other links are reached by tunnels.
func startAgent(o *options, s *server) (*agent, error) {
	programs := netlab.Programs{Dir: o.programs}
	network, err := netlab.NewNetwork(o.node, programs, "1.0.0", netlab.PluginConf(o.node))
	if err != nil {
		return nil, err
	}
	cmd := netlab.AgentCommand(programs, o.node, "", "--node-name", nodeName(0), "--kubeconfig", s.kubeconfig)
	running, err := netlab.StartAgent(o.node, cmd)
	return &agent{running, o, s, network}, err
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
	response, err := a.o.client.Get("http://127.0.0.1:9965/metrics")
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
	response, err := a.o.client.Get("http://127.0.0.1:6060/debug/pprof/" + query)
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
	pid := a.Cmd.Process.Pid
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
	process, err := procfs.NewProc(a.Cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}
