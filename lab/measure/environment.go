package measure

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/lab/contender"
	"github.com/beeline-cni/beeline/lab/result"
	"golang.org/x/sys/unix"
)

// recordedSysctls are read in the namespace of a measured pod: they decide over results.
var recordedSysctls = []string{
	"net/core/rmem_max", "net/core/wmem_max", "net/core/netdev_budget", "net/core/dev_weight", "net/core/bpf_jit_enable",
	"net/ipv4/tcp_congestion_control", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv4/tcp_timestamps", "net/ipv4/tcp_sack",
	"net/ipv4/tcp_tw_reuse", "net/ipv4/ip_local_port_range", "net/ipv4/ip_local_reserved_ports", "net/ipv4/tcp_max_tw_buckets",
}

// describe records the machine. What cannot be read is left out.
func (b *bench) describe(ctx context.Context) {
	e := result.Environment{
		CPUs: numCPU(), Sysctls: map[string]string{}, Tools: toolVersions(ctx), Features: map[string]bool{},
		LoadBefore: readLine("/proc/loadavg"),
	}
	e.Hostname, _ = os.Hostname()
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		e.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	e.Distribution = field("/etc/os-release", "PRETTY_NAME=")
	e.CPU = field("/proc/cpuinfo", "model name")
	if kb, err := strconv.ParseUint(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		e.MemoryBytes = kb * 1024
	}
	e.Virtualization = virtualization(ctx)
	first := b.lanes[0]
	e.CongestionControl = first.lab.CongestionControl
	for _, sysctl := range recordedSysctls {
		if v, err := first.lab.Place(first.client).ReadSysctl(sysctl); err == nil {
			e.Sysctls[strings.ReplaceAll(sysctl, "/", ".")] = v
		}
	}
	for _, l := range b.lanes {
		if socket := contender.AgentSocket(l.contender, l.lab.Node(0)); socket != "" {
			if s, err := api.NewClient(socket).Status(ctx); err == nil {
				for _, f := range s.Features {
					e.Features[f.Name] = f.Present
				}
			}
		}
	}
	b.run.Environment = e
}

func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// field gives the value behind a key at the beginning of a line, without the punctuation around it.
func field(path, key string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(data), "\n") {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.Trim(value, " \t:\"=")
		}
	}
	return ""
}

// virtualization names the hypervisor where something knows it.
func virtualization(ctx context.Context) string {
	if out, err := exec.CommandContext(ctx, "systemd-detect-virt", "--vm").Output(); err == nil {
		return strings.TrimSpace(string(out))
	}
	if product := readLine("/sys/class/dmi/id/product_name"); product != "" {
		return product
	}
	if strings.Contains(" "+field("/proc/cpuinfo", "flags")+" ", " hypervisor ") {
		return "a virtual machine"
	}
	return ""
}

// toolVersions asks the tools that are installed what they are.
func toolVersions(ctx context.Context) map[string]string {
	versions := map[string]string{}
	for _, t := range [][]string{{"netperf", "-V"}, {"sockperf", "--version"}, {"iperf3", "--version"}} {
		out, err := exec.CommandContext(ctx, t[0], t[1:]...).CombinedOutput()
		text := strings.TrimSpace(string(out))
		if err != nil && text == "" {
			continue
		}
		line, _, _ := strings.Cut(text, "\n")
		versions[filepath.Base(t[0])] = line
	}
	return versions
}
