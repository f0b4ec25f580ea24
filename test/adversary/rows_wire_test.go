package adversary

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// external is the app of a sender on the nodes' link that writes frames to one node's uplink.
const external = "external"

// externalSender returns the one that sends to the node with this index.
func (l *lab) externalSender(index int) *pod {
	l.t.Helper()
	if p := l.externalSenders[index]; p != nil {
		return p
	}
	n := l.nodes[index-1]
	p := &pod{Pod: &testbed.Pod{Name: external, Netns: l.lab.Client()}, app: external, node: n, mac: net.HardwareAddr{2, 0, 0, 0, 0x66, 0x66}, capture: &recording{}}
	for _, a := range l.lab.ClientAddresses() {
		p.Addresses = append(p.Addresses, a.Addr())
	}
	if err := n.Do(func() error {
		link, err := net.InterfaceByName(testbed.Uplink)
		if err == nil {
			p.host = link.HardwareAddr
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	p.senders = openSenders(l.t, p.Netns, l.lab.SwitchPort(n.Node))
	l.externalSenders[index] = p
	return p
}

// runFromWire attacks from the nodes' link: the isolated pod and, if the row is forged, the unselected one. Drops are
// checked only for rows that run only here: the reasons of other rows are those for frames of pods.
func (a attack) runFromWire(t *testing.T, l *lab, counted bool) {
	for index := 1; index <= len(l.nodes); index++ {
		for at := 1; at <= len(l.nodes); at++ {
			if at != index && !a.viaOtherNode {
				continue
			}
			for _, app := range []string{isolated, unselected} {
				for family := range podPrefixLengths {
					s := l.attempt(l.externalSender(at), l.pod(app, index), family)
					if app == unselected && a.kind != forged || a.only == 4 && family == 1 || a.only == 6 && family == 0 || a.runs != nil && !a.runs(s) {
						continue
					}
					if err := a.try(s, counted && a.viaOtherNode); err != nil {
						t.Errorf("%s on n%d, via n%d, IPv%d: %v", app, index, at, 4+2*family, err)
					}
				}
			}
		}
	}
}

// wireSources are sources that no external host has. Policies must not take them for admitted pods or for the node.
func wireSources() (rows []attack) {
	for _, source := range []struct {
		name    string
		address func(*attempt) netip.Addr
	}{
		{"the victim", (*attempt).to},
		{"the victim's node", func(s *attempt) netip.Addr { return s.victim.node.Addresses[s.family].Addr() }},
		{"another node", func(s *attempt) netip.Addr { return s.nodes[2-s.victim.node.Index].Addresses[s.family].Addr() }},
		{"the pods' gateway", func(s *attempt) netip.Addr { return s.addr("169.254.1.1", "fe80::1") }},
		{"loopback", func(s *attempt) netip.Addr { return s.addr("127.0.0.1", "::1") }},
		{"the unspecified address", func(s *attempt) netip.Addr { return s.addr("0.0.0.0", "::") }},
		{"a multicast group", func(s *attempt) netip.Addr { return s.addr("224.0.0.1", "ff02::1") }},
		{"a Service", func(s *attempt) netip.Addr { return services[s.pod(isolated, 1).Name].cluster[s.family] }},
		{"a pod that no policy admits", func(s *attempt) netip.Addr { return s.pod(attackerApp, 1).Addresses[s.family] }},
	} {
		rows = append(rows, attack{name: "source of " + source.name, kind: denied, frames: func(s *attempt) (frames [][]byte) {
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

// localSource has the source of a pod on the victim's own node, which cannot arrive by the wire.
var localSource = attack{name: "source of a pod of the victim's node", kind: forged, frames: func(s *attempt) [][]byte {
	from := netip.AddrPortFrom(s.victimNodePod(), s.port)
	p := frame.TCP(from, s.serverPort(), frame.Segment{Flags: frame.SYN}, s.token)
	return [][]byte{s.frame(frame.IP{Source: from.Addr(), Destination: s.to(), Protocol: tcp, Payload: p}), s.udpTo(from, s.serverPort(), s.token)}
}}

// localErrors are errors about a connection between two pods of the victim's node, which no router has seen.
var localErrors = attack{name: "ICMP errors about a connection within the victim's node", kind: denied, prepare: func(s *attempt) (err error) {
	victimNodePod := s.pod(unselected, s.victim.node.Index)
	s.live, err = connect(s.victim.Netns, victimNodePod.Netns, victimNodePod.Addresses[s.family])
	return err
}, frames: func(s *attempt) [][]byte {
	return s.errorsAbout(s.live.client, s.live.server)
}}

// wireTags are frames of other VLANs, and frames with priority tags (VLAN 0), which Linux handles as untagged: forged
// and denied frames stay so with the tag.
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
		a.frames = func(s *attempt) [][]byte {
			f := frames(s)
			return slices.Concat(tagged(f, 0), tagged(f, 0xe000), tagged(f, 0, 0), tagged(f, 0, 0, 0))
		}
		return a
	}
	return []attack{
		priority(localSource),
		priority(attack{name: "a SYN", kind: denied, frames: one(func(s *attempt) []byte { return s.tcp(s.port, serverPort, frame.SYN) })}),
		{name: "VLAN tags", kind: forged, frames: func(s *attempt) [][]byte {
			f := [][]byte{s.tcp(s.port, serverPort, frame.SYN)}
			return slices.Concat(tagged(f, 1), tagged(f, 5), tagged(f, 4095), tagged(f, 5, 6), tagged(f, 0, 5), tagged(f, 5, 0))
		}},
	}
}

// fromWire are the rows that an external sender runs too.
func fromWire() []attack {
	return slices.Concat(plain, midstreamRows(), wireSources(), []attack{localSource, peerTunnel, localErrors}, forgedIndirect(), hairpins(denied, nil), fragments, extensions, options, wireTags(), links[1:], lengths)
}
