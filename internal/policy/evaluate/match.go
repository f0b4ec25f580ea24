package evaluate

import (
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// isPeer reports whether an end matches one entry of `from` or `to`.
func isPeer(s *cluster.Snapshot, policy *cluster.NetworkPolicy, p cluster.PolicyPeer, e end) bool {
	if p.Block.IsValid() {
		return e.address.IsValid() && p.Block.Contains(e.address) &&
			!slices.ContainsFunc(p.Except, func(except netip.Prefix) bool { return except.Contains(e.address) })
	}
	if e.pod == nil {
		return false
	}
	// podSelector alone "selects the pods matching podSelector in the policy's own namespace", namespaceSelector alone "all pods in
	// the namespaces selected", both "the pods matching podSelector in the namespaces selected".
	if p.Namespaces == nil && e.pod.Namespace != policy.Namespace {
		return false
	}
	if p.Namespaces != nil && !matches(*p.Namespaces, namespaceLabels(s, e.pod.Namespace)) {
		return false
	}
	return p.Pods == nil || matches(*p.Pods, e.pod.Labels)
}

// namespaceLabels returns the labels of a namespace. One that the snapshot lacks has its name as a label.
func namespaceLabels(s *cluster.Snapshot, name string) cluster.Labels {
	for _, namespace := range s.Namespaces {
		if namespace.Name == name {
			return namespace.Labels
		}
	}
	return cluster.NewLabels(map[string]string{"kubernetes.io/metadata.name": name})
}

// isPort reports whether the traffic matches one entry of `ports`.
func isPort(q question, p cluster.PolicyPort) bool {
	switch {
	case p.Protocol != q.protocol:
		return false
	case p.Name != "":
		return q.destination != nil && slices.Contains(q.destination.Ports,
			cluster.ContainerPort{Name: p.Name, Protocol: q.protocol, Number: q.port})
	case p.First == 0: // "If this field is not provided, this matches all port names and numbers."
		return true
	default:
		return p.First <= q.port && q.port <= p.Last
	}
}

// matches reports whether labels meet a selector: "The requirements are ANDed. An empty label selector matches all objects."
func matches(s cluster.Selector, labels cluster.Labels) bool {
	for _, r := range s.Requirements {
		value, has := labels.Get(r.Key)
		var met bool
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			met = has && slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpNotIn: // also without the label
			met = !has || !slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpExists:
			met = has
		case metav1.LabelSelectorOpDoesNotExist:
			met = !has
		}
		if !met {
			return false
		}
	}
	return true
}
