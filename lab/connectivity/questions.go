package connectivity

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/result"
)

// Question is a connection between two of the cast, and whether it has to work.
type Question struct {
	Direction result.PolicyDirection
	// By is what the policy goes by, Case what is special about this question.
	By, Case string
	// From and To are names of the cast, or of a node.
	From, To string
	Protocol corev1.Protocol
	Port     uint16
	Want     bool
}

// Path says whether both ends are on one node.
func (q Question) Path() result.Path {
	home := map[string]int{NearNode: near, FarNode: far}
	for _, p := range Cast() {
		home[p.Name] = p.Home
	}
	if home[q.From] == home[q.To] {
		return result.SameNode
	}
	return result.CrossNode
}

// works and refused are what is right.
const (
	works   = true
	refused = false
)

// Questions are all of them.
func Questions() []Question {
	var list []Question
	ask := func(d result.PolicyDirection, by, what, from, to string, protocol corev1.Protocol, port uint16, want bool) {
		list = append(list, Question{d, by, what, from, to, protocol, port, want})
	}
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	for _, home := range []int{near, far} {
		in := func(by, what, from, kind string, protocol corev1.Protocol, port uint16, want bool) {
			ask(result.Ingress, by, what, from, at(kind, home), protocol, port, want)
		}
		in("no policy", "", "friend", "open", tcp, first, works)
		in("no policy", "", "friend", "open", udp, first, works)
		in("default deny", "", "friend", "deny", tcp, first, refused)
		in("default deny", "", "friend", "deny", udp, first, refused)
		in("allow all", "", "stranger", "all", tcp, first, works)
		in("allow all", "", "alien", "all", udp, first, works)
		in("pod selector", "chosen", "friend", "selector", tcp, first, works)
		in("pod selector", "chosen", "friend", "selector", udp, first, works)
		in("pod selector", "other labels", "stranger", "selector", tcp, first, refused)
		in("pod selector", "other labels", "stranger", "selector", udp, first, refused)
		in("pod selector", "same labels in another namespace", "foreigner", "selector", tcp, first, refused)
		in("namespace selector", "chosen", "foreigner", "namespace", tcp, first, works)
		in("namespace selector", "other namespace", "friend", "namespace", tcp, first, refused)
		in("both selectors", "chosen", "foreigner", "both", tcp, first, works)
		in("both selectors", "namespace only", "alien", "both", tcp, first, refused)
		in("both selectors", "labels only", "friend", "both", tcp, first, refused)
		in("port", "listed", "stranger", "ports", tcp, first, works)
		in("port", "not listed", "stranger", "ports", tcp, second, refused)
		in("port", "end of a range", "stranger", "ports", tcp, third, works)
		in("port", "listed", "stranger", "ports", udp, second, works)
		in("port", "listed for TCP only", "stranger", "ports", udp, first, refused)
		in("port", "by its name", "stranger", "named", tcp, first, works)
		in("port", "another than the named one", "stranger", "named", tcp, second, refused)
		in("block", "inside", "friend", "block", tcp, first, works)
		in("block", "inside", "friend", "block", udp, first, works)
		in("block", "excepted", "stranger", "block", tcp, first, refused)
		in("block", "excepted", "stranger", "block", udp, first, refused)
		in("block", "outside", "remote", "block", tcp, first, refused)

		out := func(by, what, from, kind string, protocol corev1.Protocol, port uint16, want bool) {
			ask(result.Egress, by, what, from, at(kind, home), protocol, port, want)
		}
		out("default deny", "", "out-deny", "open", tcp, first, refused)
		out("default deny", "", "out-deny", "open", udp, first, refused)
		out("allow all", "", "out-all", "open", tcp, first, works)
		out("allow all", "", "out-all", "open", udp, first, works)
		out("pod selector", "chosen", "out-selector", "open", tcp, first, works)
		out("pod selector", "other labels", "out-selector", "all", tcp, first, refused)
		out("pod selector", "other labels", "out-selector", "all", udp, first, refused)
		out("port", "listed", "out-ports", "open", tcp, first, works)
		out("port", "not listed", "out-ports", "open", tcp, second, refused)
		out("port", "listed", "out-ports", "open", udp, second, works)
		out("port", "listed for TCP only", "out-ports", "open", udp, first, refused)
		out("block", "inside", "out-block", "open", tcp, first, works)
		out("block", "excepted", "out-block", "all", tcp, first, refused)
		out("block", "excepted", "out-block", "all", udp, first, refused)
		out("both directions", "ingress forbids", "out-all", "deny", tcp, first, refused)
	}
	ask(result.Ingress, "default deny", "from its own node", NearNode, at("deny", near), tcp, first, works)
	ask(result.Ingress, "default deny", "from another node", FarNode, at("deny", near), tcp, first, refused)
	ask(result.Ingress, "block", "an address that is no pod's", FarNode, at("block", near), tcp, first, works)
	ask(result.Ingress, "block", "an address that is no pod's", FarNode, at("block", near), udp, first, works)
	ask(result.Egress, "default deny", "to its own node", "out-deny", NearNode, tcp, first, works)
	ask(result.Egress, "default deny", "to another node", "out-deny", FarNode, tcp, first, refused)
	return list
}
