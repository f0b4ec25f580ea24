package adversary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// attack is one row: frames that a pod sends, and the effects they must not have.
type attack struct {
	name string
	kind kind
	// frames are those that the attacker sends. Frames with the token must reach no pod.
	frames func(*attempt) [][]byte
	// only is 4 or 6 for a row of one family.
	only int
	// reasons are drop reasons: `beeline drops` must count one of them for each frame. None: the host's kernel stack
	// may drop the frames.
	reasons []string
	// prepare sets up what the frames need, such as a connection. It may set s.live, which is closed afterwards.
	prepare func(*attempt) error
	// offloaded frames start with a virtio header and are sent with PACKET_VNET_HDR only.
	offloaded bool
	// leavesNode: the wire may carry the forged frames; the other node drops them.
	leavesNode bool
	// viaOtherNode: from the nodes' link the row also sends to the node that does not host the victim.
	viaOtherNode bool
	// runs selects the attempts to run; nil: all.
	runs func(*attempt) bool
	// hiddenSource, if set, returns the forged source, which no pod may see. A pod that no policy selects may get the
	// frames with another source: a forwarding node masquerades them.
	hiddenSource func(*attempt) netip.Addr
	// reflected: the owner of the forged source may get ICMP errors about the frames. Only the victim must not.
	reflected bool
	// check runs after the frames were sent.
	check func(*attempt) error
}

// kind is which pods an attack must not reach, and which control proves that its frames could arrive.
type kind int

const (
	// evaluated frames are allowed or denied by policies: the same frames from an admitted pod must arrive.
	evaluated kind = iota
	// denied frames reach no pod against its policies. From an admitted pod they may arrive or not.
	denied
	// indirect frames are like denied ones. The control proves that the frontend works: the frames arrive at a pod
	// without policies.
	indirect
	// forged frames reach no pod, with or without policies, and do not leave the node.
	forged
)

// pair is an attacker and a victim, by the policies that select them.
type pair struct{ name, attacker, victim string }

var (
	selectedPairs  = []pair{{"ingress only", attackerApp, isolated}, {"egress only", restricted, unselected}, {"both", restricted, isolated}}
	unselectedPair = pair{"no policy", attackerApp, unselected}
)

func (a attack) pairs() []pair {
	if a.kind == forged {
		return append(slices.Clone(selectedPairs), unselectedPair)
	}
	return selectedPairs
}

// run attacks each victim from a pod. Drops are checked only while agents run to report them.
func (a attack) run(t *testing.T, l *lab, counted bool) {
	for _, each := range a.pairs() {
		for index := 1; index <= len(l.nodes); index++ {
			for family := range podPrefixLengths {
				if a.only == 4 && family == 1 || a.only == 6 && family == 0 {
					continue
				}
				s := l.attempt(l.pod(each.attacker, 1), l.pod(each.victim, index), family)
				if err := a.try(s, counted); err != nil {
					t.Errorf("%s, victim on n%d, IPv%d: %v", each.name, index, 4+2*family, err)
				}
			}
		}
	}
}

// try runs the attack once, and then its control.
func (a attack) try(s *attempt, counted bool) error {
	if a.prepare != nil {
		err := a.prepare(s)
		defer func() { s.live.close() }()
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	frames := a.frames(s)
	var before map[string]uint64
	counted = counted && len(a.reasons) > 0
	if counted {
		before = s.drops()
	}
	if err := s.sendAndCheck(a, frames); err != nil {
		return err
	}
	if counted {
		if err := a.wantDrops(before, s.drops(), len(frames)*a.sendersUsed(s)); err != nil {
			return err
		}
	}
	if a.check != nil {
		if err := a.check(s); err != nil {
			return err
		}
	}
	return a.control(s)
}

// sendersUsed is how many senders send each frame.
func (a attack) sendersUsed(s *attempt) int {
	if a.offloaded {
		return 1
	}
	return len(s.attacker.order)
}

// sendAndCheck sends the frames and then markers, and checks what has arrived by the time the markers have.
func (s *attempt) sendAndCheck(a attack, frames [][]byte) error {
	for _, c := range s.captures {
		c.reset()
	}
	s.wire.reset()
	err := send(func() error {
		if !a.offloaded {
			return s.attacker.each(frames)
		}
		for _, f := range frames {
			if err := s.attacker.offload.send(f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.mark(); err != nil {
		return err
	}
	for _, c := range s.captures {
		if c == s.attacker.capture {
			continue
		}
		if f := c.find(a.mustNotSee(s, c)); f != nil {
			return fmt.Errorf("%s received %x", c.name, f)
		}
	}
	secret := a.kind == forged && !a.leavesNode && s.attacker.app != external || s.attacker.app == restricted && !a.leavesNode
	if f := s.wire.find(has(s.token)); f != nil && secret {
		return fmt.Errorf("captured on the wire: %x", f)
	}
	return nil
}

// mustNotSee returns a predicate for frames that must not reach the pod of a capture.
func (a attack) mustNotSee(s *attempt, c *recording) func([]byte) bool {
	switch {
	case a.reflected && c != s.victim.capture:
		return func([]byte) bool { return false }
	case a.hiddenSource == nil || s.victim.app != unselected:
		return has(s.token)
	}
	source := a.hiddenSource(s)
	return func(f []byte) bool { return has(s.token)(f) && frame.Source(f) == source }
}

// send runs fn on one CPU, which keeps the order of its frames up to the receiver.
func send(fn func() error) error { return testbed.Netns{}.On(0).Do(fn) }

// mark sends an allowed datagram by every sender and waits until the victim has all of them. Frames sent before have
// arrived by then, or never will.
func (s *attempt) mark() error {
	marker := func(i int) []byte {
		return binary.BigEndian.AppendUint32([]byte("marker"), s.tokens<<4|uint32(i))
	}
	from, to := netip.AddrPortFrom(s.from(), markerPort), netip.AddrPortFrom(s.to(), markerPort)
	if s.viaOtherNode() { // markers take the same path as the frames
		to = netip.AddrPortFrom(s.receiver().Addresses[s.family].Addr(), s.service().markerNodePort)
	}
	err := send(func() error {
		for i, name := range s.attacker.order {
			if err := s.attacker.named[name].send(s.udpTo(from, to, marker(i))); err != nil {
				return fmt.Errorf("send marker with %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, name := range s.attacker.order {
		if err := s.victim.capture.wait(waitTimeout, has(marker(i))); err != nil {
			return fmt.Errorf("marker sent with %s: %w at %s", name, err, s.victim.Name)
		}
	}
	return nil
}

func (a attack) wantDrops(before, after map[string]uint64, want int) error {
	counted := 0
	for _, reason := range a.reasons {
		counted += int(after[reason] - before[reason])
	}
	if counted < want {
		return fmt.Errorf("%d drops of reasons %v, want %d", counted, a.reasons, want)
	}
	return nil
}

// control sends frames that must arrive: the same ones from an admitted pod, or a datagram with the token. It proves
// that the row can fail.
func (a attack) control(s *attempt) error {
	s.live.close()
	c := s.lab.attempt(s.third, s.victim, s.family)
	if a.kind == indirect {
		c = s.lab.attempt(s.pod(attackerApp, 1), s.pod(unselected, s.victim.node.Index), s.family)
	}
	frames := [][]byte{c.udp()}
	if a.kind == indirect {
		frames = a.frames(c)
	}
	if a.kind == evaluated {
		if a.prepare != nil {
			err := a.prepare(c)
			defer func() { c.live.close() }()
			if err != nil {
				return fmt.Errorf("prepare control: %w", err)
			}
		}
		frames = a.frames(c)
	}
	if err := send(func() error { return c.attacker.each(frames) }); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if err := c.victim.capture.wait(waitTimeout, has(c.token)); err != nil {
		return fmt.Errorf("control from %s: %w at %s", c.attacker.Name, err, c.victim.Name)
	}
	return nil
}

// waitPolicies waits until policies are enforced at all pods: admitted is admitted, others are not.
func (l *lab) waitPolicies() {
	l.t.Helper()
	row := attack{frames: func(s *attempt) [][]byte { return [][]byte{s.tcp(s.port, serverPort, frame.SYN)} }}
	for _, each := range selectedPairs {
		for index := range l.nodes {
			for family := range podPrefixLengths {
				eventually(l.t, func() error {
					s := l.attempt(l.pod(each.attacker, 1), l.pod(each.victim, index+1), family)
					return row.tryBriefly(s)
				})
			}
		}
	}
}

var errNotYet = errors.New("policies are not enforced yet")

// tryBriefly is try for a lab that may not enforce its policies yet, in which markers may be lost.
func (a attack) tryBriefly(s *attempt) error {
	for _, c := range s.captures {
		c.reset()
	}
	c := s.lab.attempt(s.third, s.victim, s.family)
	from, to := netip.AddrPortFrom(s.from(), markerPort), netip.AddrPortFrom(s.to(), markerPort)
	marker := binary.BigEndian.AppendUint32([]byte("first"), s.tokens)
	err := send(func() error {
		return errors.Join(s.attacker.each(a.frames(s)), s.attacker.each([][]byte{s.udpTo(from, to, marker)}), c.attacker.each(a.frames(c)))
	})
	if err != nil {
		return err
	}
	brief := waitTimeout / 60
	if err := errors.Join(s.victim.capture.wait(brief, has(marker)), s.victim.capture.wait(brief, has(c.token))); err != nil {
		return err
	}
	if s.victim.capture.find(has(s.token)) != nil {
		return errNotYet
	}
	return nil
}

// tcp is the protocol of rows that are not about a protocol.
const tcp = unix.IPPROTO_TCP
