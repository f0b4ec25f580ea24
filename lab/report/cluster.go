package report

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

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
	t := newTable(Detail, "Routes", "", "Route", "path", "MTU", "segment", "congestion", "target", "server sees")
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
			t.add(r.Network, r.Path, r.MTU, r.Segment, r.Congestion, r.Target, seen)
		}
	}
	return Section{ID: "routes", Title: "Routes", Tables: []*Table{t}}
}

// addCluster describes a cluster.
func (t *Table) addCluster(c *result.Cluster) {
	t.addMeasured("Kubernetes", c.Kubernetes)
	t.addMeasured("Network", withSource(c.CNI, strings.Join(c.Evidence, ", ")))
	t.addMeasured("kube-proxy", withSource(c.KubeProxy, c.KubeProxySource))
	t.addMeasured("Client's node", nodeText(c.Client))
	t.addMeasured("Server's node", nodeText(c.Server))
	t.addMeasured("CPU times", c.CPUTimes)
	t.addMeasured("Image", c.Image)
}

func withSource(value, source string) string {
	if source == "" {
		return value
	}
	return value + " (" + source + ")"
}

func nodeText(n result.ClusterNode) string {
	zone := ""
	if n.Zone != "" {
		zone = "zone " + n.Zone
	}
	return listed(n.Name, fmt.Sprintf("%d × %s", n.CPUs, strings.TrimSpace(n.CPU+" "+n.Architecture)), quantity(float64(n.MemoryBytes), "B"),
		n.System, "Linux "+n.Kernel, n.Runtime, "kubelet "+n.Kubelet, zone)
}
