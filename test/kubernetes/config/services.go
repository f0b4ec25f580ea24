package config

import (
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// APIServerReady is the file on a machine that exists once the API server has been ready. Services of the machine that
// need it wait, because their own attempts become rare.
func APIServerReady(machine string) string {
	return filepath.Join(plan.Dir(machine), "api-server-ready")
}

// ImagesLoaded is the file on a node's disk that exists when containerd has the essential images. The kubelet waits for
// it, because it cannot pull them.
const ImagesLoaded = "/var/lib/beeline-images-loaded"

// ContainerdSocket is the socket of a node's containerd.
const ContainerdSocket = "/run/containerd/containerd.sock"

// controlPlaneServices is services.sh of the control plane.
func controlPlaneServices(c plan.Cluster) []byte {
	return render("control-plane.sh", map[string]any{
		"Dir": plan.Dir(plan.ControlPlane), "Ready": APIServerReady(plan.ControlPlane), "Address": c.ControlPlane.Addresses()[0],
		"Port": plan.APIServerPort, "ServiceRanges": c.ServiceRanges(), "PodRanges": c.PodRanges(), "Domain": plan.Domain})
}

// nodeServices is services.sh of a node.
func nodeServices(c plan.Cluster, m plan.Machine) []byte {
	return render("node.sh", map[string]any{
		"Dir": plan.Dir(m.Name), "Ready": APIServerReady(m.Name), "Socket": ContainerdSocket, "Images": ImagesLoaded,
		"Addresses": join(m.Addresses()), "Proxy": c.Options.Proxy != plan.ProxyNone})
}

func join(addresses []netip.Addr) string {
	var words []string
	for _, a := range addresses {
		words = append(words, a.String())
	}
	return strings.Join(words, ",")
}

// CoreDNS is the manifest of the cluster's name server.
func CoreDNS(c plan.Cluster) []byte {
	return render("coredns.yaml", map[string]any{
		"Domain": plan.Domain, "DNS": c.DNSServiceIP(), "Image": CoreDNSImage, "Replicas": min(2, len(c.Nodes))})
}

// Pools is the manifest of the IPPools of a cluster that has some.
func Pools(c plan.Cluster) []byte {
	return render("pools.yaml", c.Pools())
}

// BridgeNetwork is the CNI configuration of a node with these pod CIDRs.
func BridgeNetwork(ranges []netip.Prefix) []byte {
	var defaults []netip.Prefix
	for _, r := range ranges {
		everything, _ := r.Addr().Prefix(0) // every address has that prefix
		defaults = append(defaults, everything)
	}
	return render("bridge.conflist", map[string]any{"Ranges": ranges, "Defaults": defaults})
}
