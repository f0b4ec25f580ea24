package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// syntheticCluster is the synthetic run as one of a cluster: four of its networks are ways.
func syntheticCluster() *result.Run {
	run := synthetic(8)
	ways := map[string]string{"node": "node", "node/again": "node/again", "beeline": "pod", "node+netfilter": "service", "bridge": "nodeport"}
	run.Networks = slices.DeleteFunc(run.Networks, func(c result.Network) bool { return ways[c.Name] == "" })
	for i := range run.Networks {
		c := &run.Networks[i]
		*c = result.Network{Name: ways[c.Name], Description: "a way"}
	}
	run.Samples = slices.DeleteFunc(run.Samples, func(s result.Sample) bool { return ways[s.Network] == "" || s.Placement != result.OneCore })
	for i := range run.Samples {
		s := &run.Samples[i]
		s.Network, s.Placement = ways[s.Network], result.Free
	}
	run.Footprints, run.Programs = nil, nil
	run.Summary, run.CrossChecks = stats.Summarize(run), stats.CrossCheck(run)
	run.Settings.MTU, run.Settings.Placement = 1450, []string{"free"}
	node := func(name string) result.ClusterNode {
		return result.ClusterNode{Name: name, Kernel: "6.99.0-synthetic", System: "Test data", Runtime: "containerd://9", Kubelet: "v1.99.0",
			Architecture: "amd64", CPUs: 2, MemoryBytes: 24 << 30, Zone: "z"}
	}
	run.Cluster = &result.Cluster{
		Kubernetes: "v1.99.0", CNI: "Flannel", Evidence: []string{"device flannel.1"}, KubeProxy: "iptables", KubeProxySource: "kube-proxy on node a",
		Client: node("a"), Server: node("b"), SharedKernel: true, CPUTimes: "all CPUs of the machine that both nodes share, whoever used them", Image: "bench",
		Routes: []result.ClusterRoute{
			{Network: "node", Path: result.CrossNode, Target: "192.0.2.2", MTU: 1500, Segment: 1448, Congestion: "bbr", Source: "192.0.2.1", ServerSees: "192.0.2.1"},
			{Network: "pod", Path: result.CrossNode, Target: "10.0.1.2", MTU: 1450, Segment: 1448, Congestion: "cubic", Source: "10.0.0.2", ServerSees: "10.0.0.2"},
			{Network: "service", Path: result.CrossNode, Target: "fd00::1", MTU: 1450, Segment: 1390, Congestion: "cubic", Source: "fd00:1::2", ServerSees: "fd00:1::2"},
			{Network: "nodeport", Path: result.CrossNode, Target: "192.0.2.2", MTU: 1450, Segment: 1398, Congestion: "bbr", Source: "192.0.2.1", ServerSees: "10.0.1.1"},
			{Network: "nodeport", Path: result.SameNode, Error: "reach the server's worker: connection refused"},
		},
	}
	return run
}

func TestClusterRun(t *testing.T) {
	run := syntheticCluster()
	var out bytes.Buffer
	if err := Table(&out, run); err != nil {
		t.Fatal(err)
	}
	golden(t, "cluster/table.txt", out.Bytes())
	page := render(t, run)
	checkPage(t, page)
	for _, want := range []string{"on this cluster", "4 ways", "Flannel (device flannel.1)", "iptables (kube-proxy on node a)", "a · 2 × amd64", "by a ClusterIP"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("page lacks %q", want)
		}
	}
	out.Reset()
	if err := Markdown(&out, run); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "network Flannel") || !strings.Contains(text, "| Way |") {
		t.Errorf("%s", text)
	}
}

func TestClusterCautions(t *testing.T) {
	list := clusterCautions(syntheticCluster().Cluster)
	for i, want := range []string{"share its CPUs", "way pod, cross-node, packets of up to 1450", "no way nodeport, same-node", "node: bbr, pod: cubic"} {
		if i >= len(list) || !strings.Contains(list[i], want) {
			t.Errorf("%q lacks %q", list, want)
		}
	}
	if len(list) != 4 {
		t.Errorf("%q", list)
	}
	if list := clusterCautions(nil); list != nil {
		t.Errorf("in a lab: %q", list)
	}
}

func TestCompareClusters(t *testing.T) {
	a, b := syntheticCluster(), syntheticCluster()
	b.Cluster.CNI, b.Cluster.Server.Name = "Beeline", "c"
	var out bytes.Buffer
	if err := Compare(&out, a, b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A is Flannel with kube-proxy iptables, B is Beeline with kube-proxy iptables.", "ends on different nodes", "nodeport"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}
