package adversary

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// outside is somebody on the nodes' link who writes frames to one node's uplink.
const outside = "outside"

// stranger gives the one who sends to the node with this index.
func (l *lab) stranger(index int) *pod {
	l.t.Helper()
	if p := l.strangers[index]; p != nil {
		return p
	}
	n := l.nodes[index-1]
	p := &pod{Pod: &testbed.Pod{Name: outside}, app: outside, node: n, Place: l.lab.Client(), mac: net.HardwareAddr{2, 0, 0, 0, 0x66, 0x66}, heard: &capture{}}
	for _, a := range l.lab.ClientAddresses() {
		p.Addresses = append(p.Addresses, a.Addr())
	}
	if err := n.Place().Do(func() error {
		link, err := net.InterfaceByName(testbed.Uplink)
		if err == nil {
			p.host = link.HardwareAddr
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	p.senders = openSenders(l.t, p.Place, l.lab.SwitchPort(n.Node))
	l.strangers[index] = p
	return p
}

// runFromWire carries the attack out from the nodes' link, at the pod that admits few and, if it is forged, at the one that admits all. Drops are counted of
// rows that are run only here: the reasons of others are those for which pods' frames are dropped.
func (a attack) runFromWire(t *testing.T, l *lab, counted bool) {
	for index := 1; index <= len(l.nodes); index++ {
		for at := 1; at <= len(l.nodes); at++ {
			if at != index && !a.astray {
				continue
			}
			for _, app := range []string{vault, open} {
				for family := range fewAddresses {
					s := l.scene(l.stranger(at), l.pod(app, index), family)
					if app == open && a.kind != forged || a.only == 4 && family == 1 || a.only == 6 && family == 0 || a.runs != nil && !a.runs(s) {
						continue
					}
					if err := a.try(s, counted && a.astray); err != nil {
						t.Errorf("%s on n%d, by n%d, IPv%d: %v", app, index, at, 4+2*family, err)
					}
				}
			}
		}
	}
}

// wireSources are sources that nobody outside has. Policies must not take them for pods that they admit, or for the node.
func wireSources() (rows []attack) {
	for _, source := range []struct {
		name    string
		address func(*scene) netip.Addr
	}{
		{"the victim", (*scene).to},
		{"the victim's node", func(s *scene) netip.Addr { return s.victim.node.Addresses[s.family].Addr() }},
		{"another node", func(s *scene) netip.Addr { return s.nodes[2-s.victim.node.Index].Addresses[s.family].Addr() }},
		{"the pods' gateway", func(s *scene) netip.Addr { return s.addr("169.254.1.1", "fe80::1") }},
		{"loopback", func(s *scene) netip.Addr { return s.addr("127.0.0.1", "::1") }},
		{"nobody", func(s *scene) netip.Addr { return s.addr("0.0.0.0", "::") }},
		{"a group", func(s *scene) netip.Addr { return s.addr("224.0.0.1", "ff02::1") }},
		{"a Service", func(s *scene) netip.Addr { return services[vault+"-1"].cluster[s.family] }},
		{"a pod that no policy admits", func(s *scene) netip.Addr { return s.pod(mallory, 1).Addresses[s.family] }},
	} {
		rows = append(rows, attack{name: "source of " + source.name, kind: guarded, frames: func(s *scene) (frames [][]byte) {
			from := netip.AddrPortFrom(source.address(s), s.port)
			for _, flags := range []uint8{frame.SYN, frame.ACK, frame.SYN | frame.ACK} {
				p := frame.TCP(from, s.serverPort(), frame.Segment{Flags: flags}, s.token)
				frames = append(frames, s.frame(frame.IP{Source: from.Addr(), Destination: s.to(), Protocol: tcp, Payload: p}))
			}
			return append(frames, s.udpTo(from, s.serverPort(), s.token))
		}})
	}
	return rows
}

// localSource has the source of a pod that is on the victim's own node, and so cannot come by the wire.
var localSource = attack{name: "source of a pod of the victim's node", kind: forged, frames: func(s *scene) [][]byte {
	from := netip.AddrPortFrom(s.neighbour(), s.port)
	p := frame.TCP(from, s.serverPort(), frame.Segment{Flags: frame.SYN}, s.token)
	return [][]byte{s.frame(frame.IP{Source: from.Addr(), Destination: s.to(), Protocol: tcp, Payload: p}), s.udpTo(from, s.serverPort(), s.token)}
}}

// unseen are errors about a connection between two pods of the victim's node, which no router has seen.
var unseen = attack{name: "ICMP errors about a connection within the victim's node", kind: guarded, prepare: func(s *scene) (err error) {
	neighbour := s.pod(open, s.victim.node.Index)
	s.live, err = connect(s.victim.Place, neighbour.Place, neighbour.Addresses[s.family])
	return err
}, frames: func(s *scene) [][]byte {
	return s.about(s.live.client, s.live.server)
}}

// wireTags are frames of other VLANs, and those with tags that say priority alone, which Linux takes for frames without a tag: what came with a forged source
// or is forbidden is so with the tag too.
func wireTags() []attack {
	tagged := func(frames [][]byte, ids ...uint16) (all [][]byte) {
		for _, f := range frames {
			all = append(all, frame.Tagged(f, vlanTag, ids...), frame.Tagged(f, serviceTag, ids...))
		}
		return all
	}
	priority := func(a attack) attack {
		frames := a.frames
		a.name += ", with priority tags"
		a.frames = func(s *scene) [][]byte {
			f := frames(s)
			return slices.Concat(tagged(f, 0), tagged(f, 0xe000), tagged(f, 0, 0), tagged(f, 0, 0, 0))
		}
		return a
	}
	return []attack{
		priority(localSource),
		priority(attack{name: "a SYN", kind: guarded, frames: one(func(s *scene) []byte { return s.tcp(s.port, serverPort, frame.SYN) })}),
		{name: "VLAN tags", kind: forged, frames: func(s *scene) [][]byte {
			f := [][]byte{s.tcp(s.port, serverPort, frame.SYN)}
			return slices.Concat(tagged(f, 1), tagged(f, 5), tagged(f, 4095), tagged(f, 5, 6), tagged(f, 0, 5), tagged(f, 5, 0))
		}},
	}
}

// fromWire are the rows that somebody on the nodes' link carries out too.
func fromWire() []attack {
	return slices.Concat(plain, middles(), wireSources(), []attack{localSource, peerTunnel, unseen}, forgedDetours(), hairpins(guarded, nil), fragments, extensions, options, wireTags(), links[1:], lengths)
}
