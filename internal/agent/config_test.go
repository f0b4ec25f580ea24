package agent

import (
	"strings"
	"testing"

	agentflow "github.com/beeline-cni/beeline/internal/agent/flow"
	"github.com/beeline-cni/beeline/internal/agent/value"
)

func TestConfigValidate(t *testing.T) {
	good := Defaults()
	good.NodeName, good.Manifests = "a", "/etc/beeline/manifests"
	if err := good.Validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	inCluster := good
	inCluster.Manifests = ""
	if err := inCluster.Validate(); err != nil {
		t.Errorf("a pod's service account is refused: %v", err)
	}
	for flag, spoil := range map[string]func(*Config){
		"--node-name":       func(c *Config) { c.NodeName = "" },
		"--kubeconfig":      func(c *Config) { c.Kubeconfig = "/etc/kubernetes/admin.conf" },
		"--socket":          func(c *Config) { c.Socket = "agent.sock" },
		"--state-dir":       func(c *Config) { c.StateDir = "" },
		"--bpffs":           func(c *Config) { c.BPFFS = "/sys/fs/bpf/a.b" },
		"--uplink":          func(c *Config) { c.Uplink = "eth0,auto" },
		"--api-server":      func(c *Config) { c.Manifests, c.APIServer = "", "192.0.2.1:6443" },
		"--mtu":             func(c *Config) { c.MTU = 1279 },
		"--cni-conf-dir":    func(c *Config) { c.CNIConfDir = "net.d" },
		"--cni-bin-dir":     func(c *Config) { c.CNIBinDir = "bin" },
		"--command-dir":     func(c *Config) { c.CommandDir = "bin" },
		"--cni-plugin-from": func(c *Config) { c.CNIPluginFrom = "bin" },
		"--routing":         func(c *Config) { c.Routing = "magic" },
		"--tunnel":          func(c *Config) { c.Tunnel = "geneve" },
		"--tunnel-port":     func(c *Config) { c.TunnelPort = 0 },
		"--metrics-address": func(c *Config) { c.MetricsAddress = "9965" },
		"--services":        func(c *Config) { c.Services = "ipvs" },
		"--cgroup":          func(c *Config) { c.Cgroup = "unified" },
		"--nodeport-mode":   func(c *Config) { c.NodePortMode = "tunnel" },
		"--nat-ports":       func(c *Config) { c.NATPorts = value.PortRange{First: 60000, Last: 60100} },
		"--nat-pending-max": func(c *Config) { c.Sizes.NATPending = 0 },
		"--policy":          func(c *Config) { c.Policy = "iptables" },
		"--policies-max":    func(c *Config) { c.PolicySizes.Policies = 0 },
		"--flows":           func(c *Config) { c.Flows = "some" },
		"--flows-rate":      func(c *Config) { c.FlowsRate = 0 },
		"--flows-sample":    func(c *Config) { c.FlowsSample = 0 },
		"--flows-buffer":    func(c *Config) { c.FlowsBuffer = agentflow.MaxBuffer + 1 },
		"--healthz-address": func(c *Config) { c.HealthzAddress = "10256" },

		"--nodeport-acceleration": func(c *Config) { c.NodePortAcceleration = "smartnic" },
		"--maglev-table-size":     func(c *Config) { c.MaglevTableSize = 65536 },
	} {
		c := good
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: error is %v", flag, err)
		}
	}
}

// Without an API server other hosts cannot be authorized to read metrics.
func TestMetricsBeyondTheNodeNeedAnAPIServer(t *testing.T) {
	c := Defaults()
	c.NodeName, c.Manifests, c.MetricsAddress = "n", "/etc/beeline/nodes", "0.0.0.0:9965"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--metrics-address: 0.0.0.0:9965 is reachable from other hosts") {
		t.Errorf("with manifests: %v", err)
	}
}
