package report

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// noun is what contenders are: networks, or on a cluster ways through the one it has.
func (v *view) noun() string {
	if v.run.Cluster != nil {
		return "way"
	}
	return "network"
}

// clusterFindings say how each way compares with the nodes' own.
func (v *view) clusterFindings() []finding {
	var list []finding
	for _, c := range v.contenders() {
		if c.Name == baseline || c.Name == again || len(list) == mostFindings {
			continue
		}
		if f := v.againstNode(c.Name); f != nil {
			list = append(list, *f)
		}
	}
	return list
}

// clusterCautions are what a reader of a cluster's figures must know.
func clusterCautions(c *result.Cluster) []string {
	if c == nil {
		return nil
	}
	var list []string
	if c.SharedKernel {
		list = append(list, "Both nodes run on one kernel: they share its CPUs, and what is between them is not a network card.")
	}
	for _, w := range c.Routes {
		switch most := w.MTU - tcpHeaders(w.Target); {
		case w.Error != "":
			list = append(list, fmt.Sprintf("There is no way %s, %s: %s.", w.Network, w.Path, w.Error))
		case w.Segment > most:
			list = append(list, fmt.Sprintf("On the way %s, %s, packets of up to %d bytes arrive, but TCP sends %d bytes of payload in one: the MTU in the pod or on the node is too large.",
				w.Network, w.Path, w.MTU, w.Segment))
		}
	}
	if names := differing(c.Routes); names != "" {
		list = append(list, "Congestion control differs between the ways ("+names+"): ratios show that as well.")
	}
	return list
}

// tcpHeaders are the bytes before the payload of a segment without options.
func tcpHeaders(target string) int {
	if a, err := netip.ParseAddr(target); err == nil && a.Is6() {
		return 40 + 20
	}
	return 20 + 20
}

// differing names the congestion controls where there are several.
func differing(ways []result.ClusterRoute) string {
	var kinds, texts []string
	for _, w := range ways {
		if w.Congestion != "" && !slices.Contains(kinds, w.Congestion) {
			kinds = append(kinds, w.Congestion)
			texts = append(texts, w.Network+": "+w.Congestion)
		}
	}
	if len(kinds) < 2 {
		return ""
	}
	return strings.Join(texts, ", ")
}

// ways is a table of what contenders' traffic goes through.
func (t *terminal) ways(c *result.Cluster) {
	if c == nil || len(c.Routes) == 0 {
		return
	}
	t.printf("")
	t.printf("%s %10s %8s   %s %s   %s", pad("Ways", 29), "MTU", "segment", pad("congestion", 10), pad("target", 20), "server sees")
	for _, w := range c.Routes {
		name := pad(w.Network, 15) + " " + pad(string(w.Path), 11)
		if w.Error != "" {
			t.printf("  %s %s", name, clip(w.Error, terminalWidth-31))
			continue
		}
		seen := "the client"
		if w.ServerSees != w.Source {
			seen = w.ServerSees
		}
		t.printf("  %s %10d %8d   %s %s   %s", name, w.MTU, w.Segment, pad(w.Congestion, 10), pad(w.Target, 20), seen)
	}
}

// clusterFacts describe a cluster for the page.
func clusterFacts(c *result.Cluster) []fact {
	if c == nil {
		return nil
	}
	list := []fact{
		{"Kubernetes", c.Kubernetes},
		{"Network", because(c.CNI, strings.Join(c.Evidence, ", "))},
		{"kube-proxy", because(c.KubeProxy, c.KubeProxySource)},
		{"Client's node", nodeText(c.Client)},
	}
	if c.Server.Name != c.Client.Name {
		list = append(list, fact{"Server's node", nodeText(c.Server)})
	}
	return append(list, fact{"CPU times", c.CPUTimes}, fact{"Image", c.Image})
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}

func nodeText(n result.ClusterNode) string {
	parts := []string{n.Name, fmt.Sprintf("%d × %s", n.CPUs, strings.TrimSpace(n.CPU+" "+n.Architecture)), quantity(float64(n.MemoryBytes), "B"),
		n.System, "Linux " + n.Kernel, n.Runtime, "kubelet " + n.Kubelet}
	if n.Zone != "" {
		parts = append(parts, "zone "+n.Zone)
	}
	return strings.Join(parts, " · ")
}
