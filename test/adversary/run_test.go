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

// attack is one row: frames that a pod sends, and what must not come of them.
type attack struct {
	name string
	kind kind
	// frames are what the attacker sends; those that carry the token must reach no pod.
	frames func(*scene) [][]byte
	// only is 4 or 6 for a row of one family.
	only int
	// reasons are those of which `beeline drops` must count one for each frame. Without any, the host's stack may be what drops.
	reasons []string
	// prepare makes what the frames need, a connection for example; it may set s.live, which is closed afterwards.
	prepare func(*scene) error
	// offloaded frames begin with a header of virtio and go by PACKET_VNET_HDR only.
	offloaded bool
	// travels says of forged frames that the wire may carry them: the other node drops them.
	travels bool
	// astray rows go from the nodes' link to the node beside the victim's too.
	astray bool
	// runs says in which scenes a row is run; nil: in all.
	runs func(*scene) bool
	// seen, if set, gives the source that nobody may see. A pod that no policy selects may get the frames with another one: a node that forwards them
	// gives them its own.
	seen func(*scene) netip.Addr
	// reflected says that who has the forged source may get errors about the frames: only the victim must not get any.
	reflected bool
	// after says what is wrong when the frames have been sent.
	after func(*scene) error
}

// kind says whom an attack must not reach, and which control proves that it could have.
type kind int

const (
	// judged frames are allowed or not by policies: from a pod that the victim admits the same frames must arrive.
	judged kind = iota
	// guarded frames reach no pod past its policies. What a pod that is admitted may do with them is not said.
	guarded
	// detour frames are like guarded ones, and the control proves that they lead somewhere: at a pod without policies they arrive.
	detour
	// forged frames reach nobody, whatever policies say, and do not leave the node.
	forged
)

// side is a pair of attacker and victim, by what policies say of them.
type side struct{ name, attacker, victim string }

var (
	policed   = []side{{"ingress only", mallory, vault}, {"egress only", caged, open}, {"both", caged, vault}}
	unpoliced = side{"no policy", mallory, open}
)

func (a attack) sides() []side {
	if a.kind == forged {
		return append(slices.Clone(policed), unpoliced)
	}
	return policed
}

// run carries the attack out from a pod at each victim. Drops are counted only while the agents are there to tell.
func (a attack) run(t *testing.T, l *lab, counted bool) {
	for _, each := range a.sides() {
		for index := 1; index <= len(l.nodes); index++ {
			for family := range fewAddresses {
				if a.only == 4 && family == 1 || a.only == 6 && family == 0 {
					continue
				}
				s := l.scene(l.pod(each.attacker, 1), l.pod(each.victim, index), family)
				if err := a.try(s, counted); err != nil {
					t.Errorf("%s, victim on n%d, IPv%d: %v", each.name, index, 4+2*family, err)
				}
			}
		}
	}
}

// try carries it out once, and then the control.
func (a attack) try(s *scene, counted bool) error {
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
	if err := s.strike(a, frames); err != nil {
		return err
	}
	if counted {
		if err := a.wantDrops(before, s.drops(), len(frames)*a.ways(s)); err != nil {
			return err
		}
	}
	if a.after != nil {
		if err := a.after(s); err != nil {
			return err
		}
	}
	return a.control(s)
}

// ways is in how many ways each frame is sent.
func (a attack) ways(s *scene) int {
	if a.offloaded {
		return 1
	}
	return len(s.attacker.order)
}

// strike sends the frames and then markers, and looks at what has reached pods by the time the markers have.
func (s *scene) strike(a attack, frames [][]byte) error {
	for _, c := range s.captures {
		c.forget()
	}
	s.wire.forget()
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
		if c == s.attacker.heard {
			continue
		}
		if f := c.find(a.mustNotSee(s, c)); f != nil {
			return fmt.Errorf("%s gets %x", c.name, f)
		}
	}
	secret := a.kind == forged && !a.travels && s.attacker.app != outside || s.attacker.app == caged && !a.travels
	if f := s.wire.find(has(s.token)); f != nil && secret {
		return fmt.Errorf("the wire carries %x", f)
	}
	return nil
}

// mustNotSee gives a test for frames that must not reach the pod of a capture.
func (a attack) mustNotSee(s *scene, c *capture) func([]byte) bool {
	switch {
	case a.reflected && c != s.victim.heard:
		return func([]byte) bool { return false }
	case a.seen == nil || s.victim.app != open:
		return has(s.token)
	}
	source := a.seen(s)
	return func(f []byte) bool { return has(s.token)(f) && frame.Source(f) == source }
}

// send runs fn on one CPU: what is sent there keeps its order up to the receiver.
func send(fn func() error) error { return testbed.Place{}.Do(fn) }

// mark sends a datagram that policies allow by every way and waits until the victim has all: what was sent before has
// arrived by then, or never does.
func (s *scene) mark() error {
	marker := func(way int) []byte {
		return binary.BigEndian.AppendUint32([]byte("marker"), s.tokens<<4|uint32(way))
	}
	from, to := netip.AddrPortFrom(s.from(), markerPort), netip.AddrPortFrom(s.to(), markerPort)
	if s.astray() { // markers have to take the path of the frames
		to = netip.AddrPortFrom(s.here().Addresses[s.family].Addr(), s.service().markerNodePort)
	}
	err := send(func() error {
		for i, name := range s.attacker.order {
			if err := s.attacker.named[name].send(s.udpTo(from, to, marker(i))); err != nil {
				return fmt.Errorf("send marker by %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, name := range s.attacker.order {
		if err := s.victim.heard.wait(patience, has(marker(i))); err != nil {
			return fmt.Errorf("marker by %s: %w at %s", name, err, s.victim.Name)
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
		return fmt.Errorf("%d drops counted as %v, want %d", counted, a.reasons, want)
	}
	return nil
}

// control sends what must arrive: the same frames from the pod that the victim admits, or a datagram with the token.
// Without it a row would hold as well where nothing arrives at all.
func (a attack) control(s *scene) error {
	s.live.close()
	c := s.lab.scene(s.third, s.victim, s.family)
	if a.kind == detour {
		c = s.lab.scene(s.pod(mallory, 1), s.pod(open, s.victim.node.Index), s.family)
	}
	frames := [][]byte{c.udp()}
	if a.kind == detour {
		frames = a.frames(c)
	}
	if a.kind == judged {
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
	if err := c.victim.heard.wait(patience, has(c.token)); err != nil {
		return fmt.Errorf("control from %s: %w at %s", c.attacker.Name, err, c.victim.Name)
	}
	return nil
}

// waitPolicies waits until policies are in force at all pods: the friend is admitted, others are not.
func (l *lab) waitPolicies() {
	l.t.Helper()
	row := attack{frames: func(s *scene) [][]byte { return [][]byte{s.tcp(s.port, serverPort, frame.SYN)} }}
	for _, each := range policed {
		for index := range l.nodes {
			for family := range fewAddresses {
				eventually(l.t, func() error {
					s := l.scene(l.pod(each.attacker, 1), l.pod(each.victim, index+1), family)
					return row.tryBriefly(s)
				})
			}
		}
	}
}

var errNotYet = errors.New("policies are not in force yet")

// tryBriefly is try for a lab that may not have its policies yet, in which markers may be lost.
func (a attack) tryBriefly(s *scene) error {
	for _, c := range s.captures {
		c.forget()
	}
	c := s.lab.scene(s.third, s.victim, s.family)
	from, to := netip.AddrPortFrom(s.from(), markerPort), netip.AddrPortFrom(s.to(), markerPort)
	marker := binary.BigEndian.AppendUint32([]byte("first"), s.tokens)
	err := send(func() error {
		return errors.Join(s.attacker.each(a.frames(s)), s.attacker.each([][]byte{s.udpTo(from, to, marker)}), c.attacker.each(a.frames(c)))
	})
	if err != nil {
		return err
	}
	const brief = patience / 60
	if err := errors.Join(s.victim.heard.wait(brief, has(marker)), s.victim.heard.wait(brief, has(c.token))); err != nil {
		return err
	}
	if s.victim.heard.find(has(s.token)) != nil {
		return errNotYet
	}
	return nil
}

// TCP is what rows without a protocol of their own send.
const tcp = unix.IPPROTO_TCP
