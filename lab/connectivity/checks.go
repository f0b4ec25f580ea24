package connectivity

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/result"
)

// Wanted outcomes.
const (
	allowed = true
	denied  = false
)

// Checks returns all checks: connections with their wanted outcomes.
func Checks() []result.Connection {
	home := map[string]int{NearNode: near, FarNode: far}
	for _, p := range Pods() {
		home[p.Name] = p.Home
	}
	var list []result.Connection
	add := func(d result.PolicyDirection, by, what, from, to string, protocol corev1.Protocol, port int, want bool) {
		path := result.CrossNode
		if home[from] == home[to] {
			path = result.SameNode
		}
		list = append(list, result.Connection{
			Direction: d, Rule: by, Case: what, Path: path, Protocol: string(protocol), From: from, To: to, Port: port, Allowed: want,
		})
	}
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	for _, home := range []int{near, far} {
		in := func(by, what, from, kind string, protocol corev1.Protocol, port int, want bool) {
			add(result.Ingress, by, what, from, at(kind, home), protocol, port, want)
		}
		in("no policy", "", "friend", "open", tcp, first, allowed)
		in("no policy", "", "friend", "open", udp, first, allowed)
		in("default deny", "", "friend", "deny", tcp, first, denied)
		in("default deny", "", "friend", "deny", udp, first, denied)
		in("allow all", "", "stranger", "all", tcp, first, allowed)
		in("allow all", "", "alien", "all", udp, first, allowed)
		in("pod selector", "chosen", "friend", "selector", tcp, first, allowed)
		in("pod selector", "chosen", "friend", "selector", udp, first, allowed)
		in("pod selector", "other labels", "stranger", "selector", tcp, first, denied)
		in("pod selector", "other labels", "stranger", "selector", udp, first, denied)
		in("pod selector", "same labels in another namespace", "foreigner", "selector", tcp, first, denied)
		in("namespace selector", "chosen", "foreigner", "namespace", tcp, first, allowed)
		in("namespace selector", "other namespace", "friend", "namespace", tcp, first, denied)
		in("both selectors", "chosen", "foreigner", "both", tcp, first, allowed)
		in("both selectors", "namespace only", "alien", "both", tcp, first, denied)
		in("both selectors", "labels only", "friend", "both", tcp, first, denied)
		in("port", "listed", "stranger", "ports", tcp, first, allowed)
		in("port", "not listed", "stranger", "ports", tcp, second, denied)
		in("port", "end of a range", "stranger", "ports", tcp, third, allowed)
		in("port", "listed", "stranger", "ports", udp, second, allowed)
		in("port", "listed for TCP only", "stranger", "ports", udp, first, denied)
		in("port", "by its name", "stranger", "named", tcp, first, allowed)
		in("port", "another than the named one", "stranger", "named", tcp, second, denied)
		in("block", "inside", "friend", "block", tcp, first, allowed)
		in("block", "inside", "friend", "block", udp, first, allowed)
		in("block", "excepted", "stranger", "block", tcp, first, denied)
		in("block", "excepted", "stranger", "block", udp, first, denied)
		in("block", "outside", "remote", "block", tcp, first, denied)

		out := func(by, what, from, kind string, protocol corev1.Protocol, port int, want bool) {
			add(result.Egress, by, what, from, at(kind, home), protocol, port, want)
		}
		out("default deny", "", "out-deny", "open", tcp, first, denied)
		out("default deny", "", "out-deny", "open", udp, first, denied)
		out("allow all", "", "out-all", "open", tcp, first, allowed)
		out("allow all", "", "out-all", "open", udp, first, allowed)
		out("pod selector", "chosen", "out-selector", "open", tcp, first, allowed)
		out("pod selector", "other labels", "out-selector", "all", tcp, first, denied)
		out("pod selector", "other labels", "out-selector", "all", udp, first, denied)
		out("port", "listed", "out-ports", "open", tcp, first, allowed)
		out("port", "not listed", "out-ports", "open", tcp, second, denied)
		out("port", "listed", "out-ports", "open", udp, second, allowed)
		out("port", "listed for TCP only", "out-ports", "open", udp, first, denied)
		out("block", "inside", "out-block", "open", tcp, first, allowed)
		out("block", "excepted", "out-block", "all", tcp, first, denied)
		out("block", "excepted", "out-block", "all", udp, first, denied)
		out("both directions", "ingress denies", "out-all", "deny", tcp, first, denied)
	}
	add(result.Ingress, "default deny", "from its own node", NearNode, at("deny", near), tcp, first, allowed)
	add(result.Ingress, "default deny", "from another node", FarNode, at("deny", near), tcp, first, denied)
	add(result.Ingress, "block", "an address that is no pod's", FarNode, at("block", near), tcp, first, allowed)
	add(result.Ingress, "block", "an address that is no pod's", FarNode, at("block", near), udp, first, allowed)
	add(result.Egress, "default deny", "to its own node", "out-deny", NearNode, tcp, first, allowed)
	add(result.Egress, "default deny", "to another node", "out-deny", FarNode, tcp, first, denied)
	return list
}
