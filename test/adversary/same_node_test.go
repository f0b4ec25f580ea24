package adversary

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// silence is how long a socket is watched that must hear nothing.
const silence = 300 * time.Millisecond

// TestSameNode attacks sockets that meet on one node: a tenant who opts in must reach no socket that packets would not
// have reached.
func TestSameNode(t *testing.T) {
	l := newLab(t, "--flows=off", "--same-node=sockets")
	for _, app := range []string{attackerApp, admitted, isolated} {
		l.pod(app, 1).optsIn = true
	}
	l.writePods()
	l.waitPolicies()
	for _, each := range []struct {
		name string
		run  func(*testing.T, *lab, int)
	}{
		{"a pod that did not opt in", sameNodeOptOut},
		{"a policy is edited", sameNodePolicy},
		{"a forged source", sameNodeForged},
		{"a pod ends and its address is reused", sameNodeReused},
	} {
		for family := range podPrefixLengths {
			t.Run(fmt.Sprintf("%s, IPv%d", each.name, 4+2*family), func(t *testing.T) { each.run(t, l, family) })
		}
	}
}

// meeting makes a connection of the pods whose sockets meet: the control of every attack.
func (l *lab) meeting(t *testing.T, client, server *pod, family int) (c podConn) {
	t.Helper()
	eventually(t, func() (err error) {
		if c, err = l.attempt(client, server, family).connectPods(t); err != nil {
			return err
		}
		if inPackets, err := c.asks(); err != nil || inPackets {
			return fmt.Errorf("the first message comes in packets %t: %w", inPackets, err)
		}
		if arrives, err := c.says(c.server, c.client, waitTimeout/6); err != nil || !arrives {
			return fmt.Errorf("the reply arrives %t: %w", arrives, err)
		}
		return nil
	})
	return c
}

// silent expects that what the sockets send does not arrive at the connection's ends. Errors of sending are as good.
func (c podConn) silent(t *testing.T, from, to podSocket) {
	t.Helper()
	for range 3 {
		if arrives, _ := c.says(from, to, silence); arrives {
			t.Errorf("a message from %s arrives at %s", c.attacker.Name, c.victim.Name)
		}
	}
}

// sameNodeOptOut: packets carry what a pod that opted in and one that did not send each other.
func sameNodeOptOut(t *testing.T, l *lab, family int) {
	var c podConn
	eventually(t, func() (err error) {
		c, err = l.attempt(l.pod(attackerApp, 1), l.pod(unselected, 1), family).connectPods(t)
		return err
	})
	if inPackets, err := c.asks(); err != nil || !inPackets {
		t.Errorf("a message comes in packets %t: %v", inPackets, err)
	}
}

// sameNodePolicy: when new connections are denied, no message of the old one arrives, in either direction.
func sameNodePolicy(t *testing.T, l *lab, family int) {
	c := l.meeting(t, l.pod(admitted, 1), l.pod(isolated, 1), family)
	idle := l.meeting(t, l.pod(admitted, 1), l.pod(isolated, 1), family)
	l.pod(admitted, 1).app = attackerApp
	l.writePods()
	defer func() {
		l.pod(admitted, 1).app = admitted
		l.writePods()
		l.waitPolicies()
	}()
	fresh := attack{frames: one(func(s *attempt) []byte { return s.tcp(s.port, serverPort, frame.SYN) })}
	eventually(t, func() error {
		s := l.attempt(c.attacker, c.victim, family)
		return s.sendAndCheck(fresh, fresh.frames(s))
	})
	c.silent(t, c.client, c.server)
	idle.silent(t, idle.server, idle.client) // the victim's reply is denied too
	c.silent(t, c.server, c.client)
}

// sameNodeForged: a pod that opted in makes a socket with the address and ports of another pod's connection.
func sameNodeForged(t *testing.T, l *lab, family int) {
	c := l.meeting(t, l.pod(admitted, 1), l.pod(isolated, 1), family)
	for _, ends := range []struct {
		name    string
		forward bool
		hearer  podSocket
	}{{"the client's", true, c.server}, {"the server's", false, c.client}} {
		forged, err := l.pod(attackerApp, 1).socket(family)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(int(forged))
		local, remote := c.local, c.remote
		if !ends.forward {
			local, remote = remote, local
		}
		if err := forged.repair(local, remote); err != nil {
			t.Fatal(err)
		}
		if arrives, err := c.says(forged, ends.hearer, silence); arrives || err != nil {
			t.Errorf("with %s address: the forged message arrives %t: %v", ends.name, arrives, err)
		}
	}
	if inPackets, err := c.asks(); err != nil || inPackets {
		t.Errorf("afterwards, a message comes in packets %t: %v", inPackets, err)
	}
}

// sameNodeReused: a process keeps the sockets of a pod that has ended; then another pod has its address and ports.
func sameNodeReused(t *testing.T, l *lab, family int) {
	old := l.addPod(l.nodes[0], fmt.Sprint("same-node-", family), admitted)
	old.optsIn = true
	l.writePods()
	c := l.meeting(t, old, l.pod(isolated, 1), family)
	l.deletePod(old)
	c.silent(t, c.client, c.server)
	later := l.reuseAddresses([]*pod{old}, family)[0]
	later.optsIn, later.app = true, admitted // policies allow it what they allowed the old one
	l.writePods()
	defer l.deletePod(later)
	l.meeting(t, later, l.pod(isolated, 1), family)
	c.silent(t, c.client, c.server)
	forged, err := later.socket(family)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(int(forged))
	if err := forged.repair(c.local, c.remote); err != nil {
		t.Fatal(err)
	}
	if arrives, err := c.says(forged, c.server, silence); arrives || err != nil {
		t.Errorf("a message of the later pod arrives %t at the old one's connection: %v", arrives, err)
	}
}
