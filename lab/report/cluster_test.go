package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// clusterRun is the synthetic run as one of a cluster: four of its networks are routes.
func clusterRun() *result.Run {
	run := synthetic(rounds)
	routes := map[string]string{"node": "node", "node/again": "node/again", "beeline": "pod", "node+netfilter": "service", "bridge": "nodeport"}
	run.Networks = slices.DeleteFunc(run.Networks, func(c result.Network) bool { return routes[c.Name] == "" })
	for i := range run.Networks {
		c := &run.Networks[i]
		*c = result.Network{Name: routes[c.Name], Description: "a route"}
	}
	run.Samples = slices.DeleteFunc(run.Samples, func(s result.Sample) bool { return routes[s.Network] == "" || s.Placement != result.OneCore })
	for i := range run.Samples {
		s := &run.Samples[i]
		s.Network, s.Placement = routes[s.Network], result.Free
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
	all := renderings(t, New(clusterRun()))
	for _, want := range []string{"on this cluster", "4 routes", "Flannel (device flannel.1)", "iptables (kube-proxy on node a)", "a · 2 × amd64", "to a ClusterIP"} {
		if !strings.Contains(all["page"], want) {
			t.Errorf("page lacks %q", want)
		}
	}
	if text := unpadded(all["markdown"]); !strings.Contains(text, "network Flannel") || !strings.Contains(text, "| Route |") {
		t.Errorf("%s", text)
	}
}

func TestClusterCautions(t *testing.T) {
	list := clusterCautions(clusterRun().Cluster)
	for i, want := range []string{"share its CPUs", "route pod, cross-node, packets of up to 1450", "Route nodeport, same-node does not exist", "node: bbr, pod: cubic"} {
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
	a, b := clusterRun(), clusterRun()
	b.Cluster.CNI, b.Cluster.Server.Name = "Beeline", "c"
	shown(t, Compare(a, b), "A is Flannel with kube-proxy iptables, B is Beeline with kube-proxy iptables.", "ends on different nodes", "nodeport")
}
