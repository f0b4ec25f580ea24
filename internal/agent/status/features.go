package status

import (
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/kernelprobe"
)

// ProbeFeatures tells once which of the features that a kernel may lack this one has, in the order of `beeline status`.
// A probe that fails counts as missing: it never stops the agent.
func ProbeFeatures(tcx, netkit bool) []agentapi.Feature {
	return []agentapi.Feature{
		{
			Name: "tcx", Present: tcx, Gives: "programs are replaced by one atomic update and ordered beside those of others",
			Needs: "Linux 6.6", Instead: "filters of the clsact qdisc",
		},
		{
			Name: "netkit", Present: netkit, Gives: "packets leave a pod without a queue",
			Needs: "Linux 6.7 with CONFIG_NETKIT", Instead: "veth devices",
		},
		{
			Name: "vxlan", Present: kernelprobe.VXLAN() == nil, Gives: "pods across subnets",
			Needs: "CONFIG_VXLAN", Instead: "routers that know the pod ranges",
		},
	}
}
