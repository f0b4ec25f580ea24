package cni_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// TestChain attaches pods with each of the standard plugins behind Beeline, and with all.
func TestChain(t *testing.T) {
	portmap := `{"type":"portmap","capabilities":{"portMappings":true},"snat":true}`
	bandwidth := `{"type":"bandwidth","ingressRate":1000000,"ingressBurst":1000000,"egressRate":1000000,"egressBurst":1000000}`
	tuning := `{"type":"tuning","sysctl":{"net.ipv4.conf.eth0.arp_filter":"1"}}`
	chains := map[string][]string{
		"portmap": {portmap}, "bandwidth": {bandwidth}, "tuning": {tuning}, "all": {portmap, bandwidth, tuning},
	}
	for name, chain := range chains {
		t.Run(name, func(t *testing.T) {
			for _, plugin := range []string{"portmap", "bandwidth", "tuning"} {
				if _, err := os.Stat(filepath.Join(chainDir, plugin)); err != nil {
					testenv.Missing(t, "needs the reference plugins: "+err.Error())
				}
			}
			b := newBench(t)
			list := b.list("1.0.0", chain...) // the newest version that Debian's plugins speak
			rt, netns := b.pod("web")
			rt.CapabilityArgs = map[string]any{"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
			if _, err := b.add(list, rt); err != nil {
				t.Fatal(err)
			}
			// Without portmap, whose CHECK (1.1.1) looks for every rule in iptables and ip6tables alike.
			checkable := slices.DeleteFunc(slices.Clone(chain), func(plugin string) bool { return plugin == portmap })
			if err := b.check(b.list("1.0.0", checkable...), rt); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			if slices.Contains(chain, portmap) {
				b.expectRule("iptables", "--to-destination 10.77.0.1:80")
				b.expectRule("ip6tables", "--to-destination [fd77::1]:80")
			}
			if slices.Contains(chain, tuning) {
				err := netns.Do(func(ns.NetNS) error {
					value, err := os.ReadFile("/proc/sys/net/ipv4/conf/eth0/arp_filter")
					if strings.TrimSpace(string(value)) != "1" {
						t.Errorf("arp_filter is %q", value)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				if err := b.del(list, rt); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
			b.expectEmpty()
		})
	}
}

// expectRule fails unless the tool lists a NAT rule with this text in the node's namespace.
func (b *bench) expectRule(tool, text string) {
	b.t.Helper()
	err := b.do(func() error {
		out, err := exec.Command(tool, "-t", "nat", "-S").CombinedOutput()
		if !strings.Contains(string(out), text) {
			b.t.Errorf("%s has no rule with %q:\n%s", tool, text, out)
		}
		return err
	})
	if err != nil {
		b.t.Error(err)
	}
}

// TestFailingChainIsUndone has the second plugin fail; the runtime then calls DEL for the whole list.
func TestFailingChainIsUndone(t *testing.T) {
	b := newBench(t)
	list := b.list("1.0.0", `{"type":"tuning","sysctl":{"net.ipv4.conf.all.there_is_no_such_key":"1"}}`)
	rt, _ := b.pod("web")
	if _, err := b.add(list, rt); err == nil {
		t.Fatal("the chain succeeded")
	}
	if err := b.del(list, rt); err != nil {
		t.Errorf("DEL: %v", err)
	}
	b.expectEmpty()
}
