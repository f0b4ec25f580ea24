package adversary

import "net/netip"

var invalidSource = []string{"invalid_source"}

// forgery is a source that no host on the nodes' link has, and what happens to frames with it to Services.
type forgery struct {
	name   string
	kind   kind
	source func(*attempt) netip.Addr
	runs   func(*attempt) bool
	// alwaysDropped: the receiving node drops all of them; otherwise it drops those to frontends that it serves to
	// external clients.
	alwaysDropped bool
	// plausible: the source may be legitimate at the receiving node. The victim must not see it.
	plausible bool
}

var forgeries = []forgery{
	{name: "a pod of the receiving node", kind: forged, source: (*attempt).localPod, alwaysDropped: true},
	{name: "the victim", kind: forged, source: (*attempt).to, runs: func(s *attempt) bool { return !s.viaOtherNode() }, alwaysDropped: true},
	{name: "a pod of a tunnelled node", kind: forged, source: (*attempt).remotePod, runs: func(s *attempt) bool { return s.configuration.tunnelled && !s.viaOtherNode() }},
	// Pods may use Services through the other node, which masquerades their packets, or forwards them unchanged
	// (DSR).
	{name: "a pod of the victim's node, via another node", kind: forged, source: (*attempt).victimNodePod, runs: (*attempt).viaOtherNode, plausible: true},
	{name: "the victim, via another node", kind: forged, source: (*attempt).to, runs: (*attempt).viaOtherNode, plausible: true},
	// Node-to-node traffic is not tunnelled: a Service request of a node arrives by the wire, and a pod without
	// policies may receive it.
	{name: "a tunnelled node", kind: denied, source: (*attempt).otherNodeAddress, runs: func(s *attempt) bool { return s.configuration.tunnelled && !s.viaOtherNode() }, plausible: true},
}

// forgedIndirect are frames from the nodes' link with such sources to a victim's frontends: the receiving node knows
// only after backend selection that their destination is a pod.
func forgedIndirect() (rows []attack) {
	for _, f := range forgeries {
		row := attack{kind: f.kind, viaOtherNode: true, runs: f.runs, reflected: !f.alwaysDropped}
		if f.plausible {
			row.hiddenSource = f.source
		}
		for _, by := range frontends() {
			row.name, row.reasons = "source of "+f.name+", to "+by.name, nil
			if f.alwaysDropped || by.external && !f.plausible {
				row.reasons = invalidSource
			}
			row.frames = func(s *attempt) [][]byte { return s.newFlows(f.source(s), by.to(s)) }
			rows = append(rows, row)
		}
		row.name, row.reasons = "source of "+f.name+", midstream without a connection", nil
		row.frames = func(s *attempt) (frames [][]byte) {
			for _, by := range frontends() {
				s.tokens++ // another fragment identification
				frames = append(frames, s.midstream(f.source(s), by.to(s))...)
			}
			return frames
		}
		rows = append(rows, row)
	}
	return rows
}

// viaOtherNode: the frames go to the node that does not host the victim.
func (s *attempt) viaOtherNode() bool {
	return s.attacker.app == external && s.attacker.node != s.victim.node
}

// localPod is a pod of the receiving node, one that the victim admits if there is one; remotePod is one of the other
// node.
func (s *attempt) localPod() netip.Addr  { return s.podOf(s.receiver()) }
func (s *attempt) remotePod() netip.Addr { return s.podOf(s.otherNode()) }

func (s *attempt) podOf(n *node) netip.Addr {
	if n == s.victim.node {
		return s.victimNodePod()
	}
	if n == s.third.node {
		return s.third.Addresses[s.family]
	}
	return s.pod(unselected, n.Index).Addresses[s.family]
}

func (s *attempt) otherNodeAddress() netip.Addr { return s.otherNode().Addresses[s.family].Addr() }
