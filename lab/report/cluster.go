package report

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// clusterLine names a cluster in one line: version, network, kube-proxy's mode, nodes, MTU.
func clusterLine(c *result.Cluster, mtu int) string {
	nodes := c.Client.Name + " → " + c.Server.Name
	if c.Client.Name == c.Server.Name {
		nodes = c.Client.Name
	}
	parts := []string{"Kubernetes " + c.Kubernetes, "network " + c.CNI, "kube-proxy " + c.KubeProxy, nodes}
	if mtu > 0 {
		parts = append(parts, fmt.Sprintf("path MTU %d", mtu))
	}
	return strings.Join(parts, " · ")
}

// clusterCautions are properties of a cluster that weaken its figures.
func clusterCautions(c *result.Cluster) []string {
	if c == nil {
		return nil
	}
	var list []string
	if c.SharedKernel {
		list = append(list, "Both nodes run on one kernel: they share its CPUs, and the wire between them is not a network card.")
	}
	var controls, names []string
	for _, r := range c.Routes {
		switch {
		case r.Error != "":
			list = append(list, fmt.Sprintf("Route %s, %s does not exist: %s.", r.Network, r.Path, r.Error))
		case r.Segment > r.MTU-tcpHeaders(r.Target):
			list = append(list, fmt.Sprintf("On route %s, %s, packets of up to %d bytes arrive, but TCP sends %d bytes of payload in one: the MTU in the pod or on the node is too large.",
				r.Network, r.Path, r.MTU, r.Segment))
		}
		if r.Congestion != "" && !slices.Contains(controls, r.Congestion) {
			controls = append(controls, r.Congestion)
			names = append(names, r.Network+": "+r.Congestion)
		}
	}
	if len(controls) > 1 {
		list = append(list, "Congestion control differs between the routes ("+strings.Join(names, ", ")+"): ratios include that difference.")
	}
	return list
}

// tcpHeaders is the size, in bytes, of the headers of a TCP segment without options.
func tcpHeaders(target string) int {
	if a, err := netip.ParseAddr(target); err == nil && a.Is6() {
		return 40 + 20
	}
	return 20 + 20
}

// routes has the routes through the network of a cluster.
func (v *view) routes() Section {
	t := &Table{Title: "Routes", In: OnText | OnHTML,
		Columns: []Column{{Title: "Route", Left: true, Code: true}, texts("path"), {Title: "MTU"}, {Title: "segment"}, texts("congestion"), texts("target"), texts("server sees")}}
	if v.run.Cluster != nil {
		for _, r := range v.run.Cluster.Routes {
			if r.Error != "" {
				t.add(r.Network).Note = string(r.Path) + ": " + r.Error
				continue
			}
			seen := r.ServerSees
			if seen == r.Source {
				seen = "the client"
			}
			t.add(r.Network, cells(string(r.Path), fmt.Sprint(r.MTU), fmt.Sprint(r.Segment), r.Congestion, r.Target, seen)...)
		}
	}
	return Section{ID: "routes", Title: "Routes", Tables: []*Table{t}}
}

// clusterFacts describe a cluster.
func clusterFacts(c *result.Cluster) [][2]string {
	if c == nil {
		return nil
	}
	list := [][2]string{
		{"Kubernetes", c.Kubernetes},
		{"Network", withSource(c.CNI, strings.Join(c.Evidence, ", "))},
		{"kube-proxy", withSource(c.KubeProxy, c.KubeProxySource)},
		{"Client's node", nodeText(c.Client)},
	}
	if c.Server.Name != c.Client.Name {
		list = append(list, [2]string{"Server's node", nodeText(c.Server)})
	}
	return append(list, [2]string{"CPU times", c.CPUTimes}, [2]string{"Image", c.Image})
}

func withSource(value, source string) string {
	if source == "" {
		return value
	}
	return value + " (" + source + ")"
}

func nodeText(n result.ClusterNode) string {
	parts := []string{n.Name, fmt.Sprintf("%d × %s", n.CPUs, strings.TrimSpace(n.CPU+" "+n.Architecture)), quantity(float64(n.MemoryBytes), "B"),
		n.System, "Linux " + n.Kernel, n.Runtime, "kubelet " + n.Kubelet}
	if n.Zone != "" {
		parts = append(parts, "zone "+n.Zone)
	}
	return strings.Join(parts, " · ")
}
