package status

import (
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/kernelprobe"
)

// optionalFeatures are what a kernel may lack, in the order of `beeline status`. Name is that in kernelprobe.Kinds,
// if the probe is there.
var optionalFeatures = []agentapi.Feature{
	{Name: "tcx", Gives: "programs are replaced by one atomic update and ordered beside those of others", Needs: "Linux 6.6", Instead: "filters of the clsact qdisc"},
	{Name: "netkit", Gives: "pod devices without a pass through the backlog on the way out (not used yet)", Needs: "Linux 6.7, CONFIG_NETKIT", Instead: "veth"},
	{Name: "macvlan", Gives: "underlay pods (not used yet)", Needs: "CONFIG_MACVLAN", Instead: "veth"},
	{Name: "ipvlan", Gives: "underlay pods that share the node's MAC address (not used yet)", Needs: "CONFIG_IPVLAN", Instead: "veth"},
	{Name: "vxlan", Gives: "pods across subnets", Needs: "CONFIG_VXLAN", Instead: "routers that know the pod ranges"},
	{Name: "geneve", Gives: "pods across subnets (not used yet)", Needs: "CONFIG_GENEVE", Instead: "VXLAN"},
	{Name: "wireguard", Gives: "encryption between nodes (not used yet)", Needs: "Linux 5.6, CONFIG_WIREGUARD", Instead: "no encryption"},
	{Name: "esp4", Gives: "IPsec between nodes (not used yet)", Needs: "CONFIG_INET_ESP, CONFIG_CRYPTO_GCM", Instead: "no encryption"},
	{Name: "esp6", Gives: "IPsec between nodes over IPv6 (not used yet)", Needs: "CONFIG_INET6_ESP, CONFIG_CRYPTO_GCM", Instead: "no encryption"},
	{Name: "fq", Gives: "bandwidth limits by departure time (not used yet)", Needs: "CONFIG_NET_SCH_FQ", Instead: "no bandwidth limits"},
}

// ProbeFeatures probes the kernel once. A probe that fails counts as missing: it never stops the agent.
func ProbeFeatures(tcx bool) []agentapi.Feature {
	kinds := kernelprobe.Kinds()
	features := make([]agentapi.Feature, 0, len(optionalFeatures))
	for _, f := range optionalFeatures {
		err, probed := kinds[f.Name]
		f.Present = probed && err == nil
		if f.Name == "tcx" {
			f.Present = tcx
		}
		features = append(features, f)
	}
	return features
}
