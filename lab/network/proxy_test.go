package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
)

func TestProxies(t *testing.T) {
	for _, p := range WithServices() {
		p, ok := p.(Proxy)
		if !ok {
			continue
		}
		t.Run(p.Name(), func(t *testing.T) {
			testenv.Root(t)
			if why := p.Unsupported(); why != "" {
				testenv.Missing(t, why)
			}
			if _, ok := p.(KubeProxy); ok {
				if err := BuildKubeProxy(t.Context(), t.Logf); err != nil {
					testenv.Missing(t, "kube-proxy: "+err.Error())
				}
			}
			testProxy(t, p)
		})
	}
}

// reachPatience is for emulated machines, where kube-proxy takes a minute to write its first rules.
const reachPatience = 3 * time.Minute

// testProxy connects to a Service from a pod and from a node, before and after its backend is exchanged for another.
func testProxy(t *testing.T, p Proxy) {
	ctx := t.Context()
	lab := bareLab(t, "t-"+p.Name())
	server, _, err := ServeObjects(ctx, lab)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.Put(append(Pools(p, lab), policies.Namespace(policies.Default, nil))...); err != nil {
		t.Fatal(err)
	}
	if err := p.Up(ctx, lab); err != nil {
		t.Fatal(err)
	}
	if err := p.StartProxy(ctx, lab); err != nil {
		t.Fatal(err)
	}
	add := func(node int, name string) *testbed.Pod {
		t.Helper()
		pod, err := AddKnownPod(ctx, p, lab, lab.Node(node), policies.Pod{Namespace: policies.Default, Name: name}, server.Put)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	client := add(0, "client")
	const port = 7000
	service := services.Service{Name: "echo", Address: services.TargetAddress(0), Ports: []int{port}}
	var backends []services.Backend
	for i, name := range []string{"first", "second"} {
		pod := add(1, name)
		listener, err := convergence.Listen(ctx, pod.Netns, netip.AddrPortFrom(pod.Addresses[0], port), byte(i))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		backends = append(backends, services.Backend{Address: pod.Addresses[0], Node: pod.Node})
	}
	spaces := map[string]testbed.Netns{"pod": client.Netns}
	if p.Name() != beelineTC.Name() { // the node's own sockets would need programs at sockets
		spaces["node"] = lab.Node(0).Netns
	}
	for i, backend := range backends {
		service.Backends = []services.Backend{backend}
		if err := server.Put(service.Objects()...); err != nil {
			t.Fatal(err)
		}
		for where, netns := range spaces {
			c, err := convergence.Start(netns)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Reach(ctx, netip.AddrPortFrom(service.Address, port), i, reachPatience); err != nil {
				log, _ := os.ReadFile(kubeProxyFile(lab.Node(0), "log"))
				t.Errorf("backend %d from a %s: %v\n%s", i, where, err, log)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if p.ProxyPID(lab.Node(1)) == 0 {
		t.Error("what takes care of Services does not run on the second node")
	}
}

func TestKubeProxyConfiguration(t *testing.T) {
	lab := &testbed.Lab{Options: testbed.Options{IPv6: true}}
	node := &testbed.Node{Name: "n1"}
	c := KubeProxy{Mode: "nftables"}.configuration(lab, node)
	if c["mode"] != "nftables" || c["hostnameOverride"] != "n1" || c["clusterCIDR"] != "10.77.0.0/16,fd77:1::/32" {
		t.Errorf("%v", c)
	}
	if kept := withoutProxies([]string{"HTTP_PROXY=x", "https_proxy=y", "PATH=/bin"}); len(kept) != 1 || kept[0] != "PATH=/bin" {
		t.Errorf("%q", kept)
	}
	if base := filepath.Base(kubeProxyFile(node, "log")); base != "kube-proxy.log" {
		t.Errorf("%s", base)
	}
}
