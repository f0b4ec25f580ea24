package cluster

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// unknown stands for what the bench could not find out.
const unknown = "unknown"

// network is a container network and the traces that it leaves where the API, and a pod in the network of a node, see
// them. Names of DaemonSets and devices that end in * are beginnings.
type network struct {
	name        string
	daemonSets  []string
	annotations []string // beginnings of keys on Nodes
	devices     []string
	reason      string // of the condition NetworkUnavailable of Nodes
}

// networks are the known ones, in the order in which they are named where there are several.
var networks = []network{
	{"Beeline", []string{"beeline"}, nil, []string{"beeline-vxlan"}, "BeelineReady"},
	{"Cilium", []string{"cilium", "anetd"}, []string{"network.cilium.io/", "io.cilium.network."}, []string{"cilium_host"}, "CiliumIsUp"},
	{"Calico", []string{"calico-node"}, []string{"projectcalico.org/"}, []string{"vxlan.calico", "cali*"}, "CalicoIsUp"},
	{"Canal", []string{"canal"}, nil, nil, ""},
	{"Flannel", []string{"kube-flannel*"}, []string{"flannel.alpha.coreos.com/"}, []string{"flannel.1"}, "FlannelIsUp"},
	{"Antrea", []string{"antrea-agent"}, []string{"node.antrea.io/"}, []string{"antrea-gw0"}, ""},
	{"Weave Net", []string{"weave-net"}, nil, []string{"weave"}, "WeaveIsUp"},
	{"kube-router", []string{"kube-router"}, nil, []string{"kube-bridge"}, ""},
	{"Kube-OVN", []string{"kube-ovn-cni"}, []string{"ovn.kubernetes.io/"}, []string{"ovn0"}, ""},
	{"OVN-Kubernetes", []string{"ovnkube-node"}, []string{"k8s.ovn.org/"}, []string{"ovn-k8s-mp0"}, ""},
	{"OpenShift SDN", []string{"sdn"}, nil, nil, ""},
	{"Amazon VPC CNI", []string{"aws-node"}, nil, nil, ""},
	{"Azure CNI", []string{"azure-cns"}, nil, []string{"azv*"}, ""},
	{"Spiderpool", []string{"spiderpool-agent"}, nil, nil, ""},
	{"kindnet", []string{"kindnet"}, nil, nil, ""},
}

// bridgeDevice is the reference plugin's default name; networks that call the plugin have it too.
const bridgeDevice = "cni0"

func fits(pattern, name string) bool {
	if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, beginning)
	}
	return pattern == name
}

// detectNetwork names the networks whose traces are there, and the traces. Every network found is named: a cluster may
// have two, and that decides over results as well.
func detectNetwork(daemonSets []appsv1.DaemonSet, nodes []corev1.Node, devices []string) (name string, evidence []string) {
	var found []string
	for _, n := range networks {
		traces := n.traces(daemonSets, nodes, devices)
		if len(traces) > 0 {
			found = append(found, n.name)
			evidence = append(evidence, traces...)
		}
	}
	if len(found) == 0 && slices.Contains(devices, bridgeDevice) {
		return "bridge", []string{"device " + bridgeDevice + " and no trace of a network that is known"}
	}
	return cmp.Or(strings.Join(found, " and "), unknown), evidence
}

func (n network) traces(daemonSets []appsv1.DaemonSet, nodes []corev1.Node, devices []string) (list []string) {
	for _, d := range daemonSets {
		if slices.ContainsFunc(n.daemonSets, func(p string) bool { return fits(p, d.Name) }) {
			trace := fmt.Sprintf("DaemonSet %s/%s", d.Namespace, d.Name)
			if c := d.Spec.Template.Spec.Containers; len(c) > 0 {
				trace += " of " + c[0].Image
			}
			list = append(list, trace)
		}
	}
	for _, beginning := range n.annotations {
		for _, node := range nodes {
			for key := range node.Annotations {
				if strings.HasPrefix(key, beginning) && !slices.Contains(list, "annotations "+beginning+"…") {
					list = append(list, "annotations "+beginning+"…")
				}
			}
		}
	}
	for _, node := range nodes {
		for _, c := range node.Status.Conditions {
			trace := "condition NetworkUnavailable with reason " + c.Reason
			if c.Type == corev1.NodeNetworkUnavailable && n.reason != "" && c.Reason == n.reason && !slices.Contains(list, trace) {
				list = append(list, trace)
			}
		}
	}
	for _, device := range devices {
		if slices.ContainsFunc(n.devices, func(p string) bool { return fits(p, device) }) {
			return append(list, "device "+device) // one says as much as all
		}
	}
	return list
}

// proxyModeLine is the mode in kube-proxy's configuration file; an empty one is iptables.
var proxyModeLine = regexp.MustCompile(`(?m)^\s*"?mode"?:\s*"?([a-z]*)"?,?\s*$`)

// detectProxy says how Services are translated. What kube-proxy says itself is believed first; then its configuration.
func detectProxy(node, said, notSaid string, daemonSets []appsv1.DaemonSet, config map[string]string) (mode, source string) {
	if said != "" {
		return said, "kube-proxy on node " + node
	}
	there := slices.ContainsFunc(daemonSets, func(d appsv1.DaemonSet) bool { return strings.HasPrefix(d.Name, "kube-proxy") })
	for _, text := range config {
		if m := proxyModeLine.FindStringSubmatch(text); m != nil {
			return cmp.Or(m[1], "iptables"), "ConfigMap kube-system/kube-proxy"
		}
	}
	if there {
		return unknown, "there is a DaemonSet of kube-proxy, but no mode: " + notSaid
	}
	return "none", "no DaemonSet of kube-proxy was seen, and on node " + node + ": " + notSaid
}
