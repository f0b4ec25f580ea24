package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
)

func TestBenchUsage(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown flag":       {[]string{"--no-such-flag"}, "no-such-flag"},
		"unknown network":    {[]string{"--networks", "missing"}, `no network "missing"`},
		"unknown workload":   {[]string{"--workloads", "nothing"}, `no workload "nothing"`},
		"no path":            {[]string{"--paths", "nowhere"}, `no path "nowhere"`},
		"an argument":        {[]string{"node"}, "node"},
		"quick and full":     {[]string{"--quick", "--full"}, "--quick and --full exclude each other"},
		"no placement":       {[]string{"--placement", "everywhere"}, `no placement "everywhere"`},
		"negative rounds":    {[]string{"--rounds", "-1"}, "more than 0"},
		"no rounds":          {[]string{"--rounds", "0"}, "more than 0"},
		"no duration":        {[]string{"--duration", "0s"}, "more than 0"},
		"impossible MTU":     {[]string{"--mtu", "0"}, "MTU 0"},
		"negative limit":     {[]string{"--max-steal", "-1"}, "negative"},
		"sample too short":   {[]string{"--duration", "1ms"}, "at least 50ms"},
		"more pods than fit": {[]string{"--pods", "1000"}, "pods 1000"},
		"cluster only":       {[]string{"--clean"}, "--clean has no meaning with --suite=network in labs"},
		"lab only":           {[]string{"--kubeconfig", "f", "--mtu", "9000"}, "--mtu has no meaning with --suite=network on a cluster"},
		"secret nowhere":     {[]string{"--kubeconfig", "f", "--image-pull-secret", "s"}, "needs --namespace"},
		"lab's network":      {[]string{"--kubeconfig", "f", "--networks", "ptp"}, "there are: node, pod, service, nodeport"},
		"lab's placement":    {[]string{"--kubeconfig", "f", "--placement", "spread"}, "one kernel"},
		"unknown suite":      {[]string{"--suite", "storage"}, `no suite "storage"`},
		"network's levels":   {[]string{"--levels", "1,10"}, "--levels has no meaning with --suite=network"},
		"pods in services":   {[]string{"--suite", "services", "--pods", "3"}, "--pods has no meaning with --suite=services"},
		"services on IPv6":   {[]string{"--suite", "services", "--ipv6"}, "--ipv6 has no meaning"},
		"network's member":   {[]string{"--suite", "services", "--networks", "vxlan"}, `no network "vxlan"; there are: node, beeline-socket`},
		"no Services":        {[]string{"--suite", "services", "--levels", "0"}, "0 Services"},
		"nodeport's MTU":     {[]string{"--suite", "nodeport", "--mtu", "9000"}, "--mtu has no meaning"},
		"policy on IPv6":     {[]string{"--suite", "policy", "--ipv6"}, "--ipv6 has no meaning"},
		"policy's levels":    {[]string{"--suite", "policy", "--levels", "1"}, "--levels has no meaning with --suite=policy"},
		"policy's member":    {[]string{"--suite", "policy", "--networks", "vxlan"}, `no network "vxlan"; there are: node, beeline, beeline-policy-elsewhere`},
		"encryption's MTU":   {[]string{"--suite", "encryption", "--mtu", "9000"}, "--mtu has no meaning with --suite=encryption"},
		"encryption's work":  {[]string{"--suite", "encryption", "--workloads", "udp_rr"}, "not one of the suite encryption"},
		"no such port":       {[]string{"--kubeconfig", "f", "--host-ports", "1"}, "between 1024 and 65535"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := cli.Run(context.Background(), cli.Env{Stdout: &stdout, Stderr: &stderr}, newRootCommand, append([]string{"bench"}, test.args...))
			if code != int(exitUsage) || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("code %d, %q; want %d and %q", code, stderr.String(), exitUsage, test.want)
			}
		})
	}
}

func TestBenchList(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := cli.Run(context.Background(), cli.Env{Stdout: &stdout, Stderr: &stderr}, newRootCommand, []string{"bench", "--list"}); code != 0 {
		t.Fatalf("code %d: %s", code, stderr.String())
	}
	for _, name := range []string{"node+netfilter", "beeline-kernel", "vxlan", "tcp_stream_128k", "sockperf_tcp", "udp_max"} {
		if !strings.Contains(stdout.String(), name) {
			t.Errorf("%s is not listed", name)
		}
	}
}

func TestBenchListOfSuites(t *testing.T) {
	for suite, want := range map[string][]string{
		"services": {"beeline-socket", "kube-proxy-ipvs", "tcp_crr"},
		"policy":   {"beeline-blocks-100000", "ptp-iptables-policy", "tcp_crr"},
		"nodeport": {"beeline-xdp", "kube-proxy-iptables", "nodeport_saturation"},
	} {
		var stdout, stderr bytes.Buffer
		if code := cli.Run(context.Background(), cli.Env{Stdout: &stdout, Stderr: &stderr}, newRootCommand, []string{"bench", "--list", "--suite", suite}); code != 0 {
			t.Fatalf("code %d: %s", code, stderr.String())
		}
		for _, name := range append(want, "node ") {
			if !strings.Contains(stdout.String(), name) {
				t.Errorf("%s: %s is not listed:\n%s", suite, name, stdout.String())
			}
		}
	}
}

func TestBenchListOfCluster(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := cli.Run(context.Background(), cli.Env{Stdout: &stdout, Stderr: &stderr}, newRootCommand, []string{"bench", "--list", "--kubeconfig", "f"}); code != 0 {
		t.Fatalf("code %d: %s", code, stderr.String())
	}
	if text := stdout.String(); !strings.Contains(text, "nodeport") || strings.Contains(text, "macvlan") {
		t.Errorf("%s", text)
	}
}

func TestBenchWithoutCluster(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := cli.Run(context.Background(), cli.Env{Stdout: &stdout, Stderr: &stderr}, newRootCommand, []string{"bench", "--kubeconfig", "/nowhere/kubeconfig"})
	if code != int(exitMeasure) || !strings.Contains(stderr.String(), "/nowhere/kubeconfig") {
		t.Errorf("code %d: %s", code, stderr.String())
	}
}
