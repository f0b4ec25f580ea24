// Package machine says what machine this is: what a reader of results has to know to compare them.
package machine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
	"golang.org/x/sys/unix"
)

// sysctls are worth recording of the network namespace of a measured pod: they decide over results. The names are paths
// below /proc/sys.
var sysctls = []string{
	"net/core/rmem_max", "net/core/wmem_max", "net/core/netdev_budget", "net/core/dev_weight", "net/core/bpf_jit_enable",
	"net/ipv4/tcp_congestion_control", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv4/tcp_timestamps", "net/ipv4/tcp_sack",
	"net/ipv4/tcp_tw_reuse", "net/ipv4/ip_local_port_range", "net/ipv4/ip_local_reserved_ports", "net/ipv4/tcp_max_tw_buckets",
}

// Describe records the machine with as many CPUs as it has. It leaves out what it cannot read, and settings of network
// namespaces: see DescribeNetns.
func Describe(ctx context.Context) result.Environment {
	e := result.Environment{
		Sysctls: map[string]string{}, Tools: toolVersions(ctx), Features: map[string]bool{}, LoadBefore: readLine("/proc/loadavg"),
	}
	e.Hostname, _ = os.Hostname()
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		e.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if cpus, err := procstat.Read(); err == nil {
		e.CPUs = len(cpus)
	}
	e.Distribution = field("/etc/os-release", "PRETTY_NAME=")
	e.CPU = field("/proc/cpuinfo", "model name")
	if kb, err := strconv.ParseUint(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		e.MemoryBytes = kb * 1024
	}
	e.Virtualization = virtualization(ctx)
	return e
}

// DescribeNetns adds the settings of the network namespace of a measured pod.
func DescribeNetns(e *result.Environment, netns testbed.Netns) {
	for _, name := range sysctls {
		if v, err := netns.ReadSysctl(name); err == nil {
			e.Sysctls[strings.ReplaceAll(name, "/", ".")] = v
		}
	}
	e.CongestionControl = e.Sysctls["net.ipv4.tcp_congestion_control"]
}

func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// field returns the value behind a key at the beginning of a line, without the punctuation around it.
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
