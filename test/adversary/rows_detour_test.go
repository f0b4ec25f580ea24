package adversary

import "net/netip"

var invalidSource = []string{"invalid_source"}

// forgery is a source that nobody on the nodes' link has, and what must become of frames to Services that bear it.
type forgery struct {
	name   string
	kind   kind
	source func(*scene) netip.Addr
	runs   func(*scene) bool
	// everywhere says that the node that gets the frames drops all of them, else it drops those to Services that answer there.
	everywhere bool
	// passes says that the source may be true for the node that gets the frames. The victim must not see it.
	passes bool
}

var forgeries = []forgery{
	{name: "a pod of the node that gets it", kind: forged, source: (*scene).podHere, everywhere: true},
	{name: "the victim", kind: forged, source: (*scene).to, runs: func(s *scene) bool { return !s.astray() }, everywhere: true},
	{name: "a pod of a tunnelled node", kind: forged, source: (*scene).podThere, runs: func(s *scene) bool { return s.configuration.tunnelled && !s.astray() }},
	// Pods may use Services by the other node, which forwards what they send with its own address, or as it is (DSR).
	{name: "a pod of the victim's node, by another node", kind: forged, source: (*scene).neighbour, runs: (*scene).astray, passes: true},
	{name: "the victim, by another node", kind: forged, source: (*scene).to, runs: (*scene).astray, passes: true},
	// Between nodes there is no tunnel: what one of them sends to a Service comes by the wire, and a pod that admits all may get it.
	{name: "a tunnelled node", kind: guarded, source: (*scene).nodeThere, runs: func(s *scene) bool { return s.configuration.tunnelled && !s.astray() }, passes: true},
}

// forgedDetours are frames on the nodes' link with such sources, to a victim by another address than its own: the node that gets them knows only when it
// has chosen the backend that they are for a pod.
func forgedDetours() (rows []attack) {
	for _, f := range forgeries {
		row := attack{kind: f.kind, astray: true, runs: f.runs, reflected: !f.everywhere}
		if f.passes {
			row.seen = f.source
		}
		for _, by := range frontends() {
			row.name, row.reasons = "source of "+f.name+", to "+by.name, nil
			if f.everywhere || by.outside && !f.passes {
				row.reasons = invalidSource
			}
			row.frames = func(s *scene) [][]byte { return s.openers(f.source(s), by.to(s)) }
			rows = append(rows, row)
		}
		row.name, row.reasons = "source of "+f.name+", in the middle of what nobody has begun", nil
		row.frames = func(s *scene) (frames [][]byte) {
			for _, by := range frontends() {
				s.tokens++ // another identification
				frames = append(frames, s.middles(f.source(s), by.to(s))...)
			}
			return frames
		}
		rows = append(rows, row)
	}
	return rows
}

// astray says that the frames go to the node beside the victim's.
func (s *scene) astray() bool { return s.attacker.app == outside && s.attacker.node != s.victim.node }

// podHere is a pod of the node that gets the frames, which the victim admits if there is one; podThere one of the other node.
func (s *scene) podHere() netip.Addr  { return s.podOf(s.here()) }
func (s *scene) podThere() netip.Addr { return s.podOf(s.there()) }

func (s *scene) podOf(n *node) netip.Addr {
	if n == s.victim.node {
		return s.neighbour()
	}
	if n == s.third.node {
		return s.third.Addresses[s.family]
	}
	return s.pod(open, n.Index).Addresses[s.family]
}

func (s *scene) nodeThere() netip.Addr { return s.there().Addresses[s.family].Addr() }
