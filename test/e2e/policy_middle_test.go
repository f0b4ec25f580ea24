package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// conversation is both ends of a TCP connection.
type conversation struct{ client, server net.Conn }

// converse opens one.
func converse(t *testing.T, client, server machine, port uint16, family int) conversation {
	t.Helper()
	to := netip.AddrPortFrom(server.addresses[family], port).String()
	var l net.Listener
	if err := server.netns.Do(func() (err error) {
		l, err = net.Listen("tcp", to)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var c conversation
	if err := client.netns.Do(func() (err error) {
		c.client, err = net.DialTimeout("tcp", to, patience)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.client.Close() })
	var err error
	if c.server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.server.Close() })
	return c
}

// passes checks that a byte from one end reaches the other in time.
func passes(from, to net.Conn, limit time.Duration) error {
	if _, err := from.Write([]byte("x")); err != nil {
		return err
	}
	if err := to.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := io.ReadFull(to, make([]byte, 1))
	return err
}

// Established connections continue under the first policy that selects a pod if it allows them, whichever end sends
// first and whatever the ports, and stop if not.
func TestPolicyFirstUnderConnections(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"ebpf": nil, "kernel": {"--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			g := newPolicyLab(t, flags...)
			type held struct {
				name          string
				from, to      func(conversation) net.Conn
				client, other machine
				allowed       bool
				conversation
			}
			client := func(c conversation) net.Conn { return c.client }
			server := func(c conversation) net.Conn { return c.server }
			var all []held
			port := uint16(40100)
			for family := range 2 {
				for _, peer := range []machine{g.near, g.far} {
					for _, h := range []held{
						{name: "of the pod, which sends first", from: client, to: server, client: g.pod, other: peer, allowed: true},
						{name: "of the pod, the other end sends first", from: server, to: client, client: g.pod, other: peer, allowed: true},
						{name: "to the pod, which sends first", from: server, to: client, client: peer, other: g.pod},
						{name: "to the pod, the other end sends first", from: client, to: server, client: peer, other: g.pod},
					} {
						port++
						h.conversation = converse(t, h.client, h.other, port, family)
						h.name = fmt.Sprintf("%s and %s, family %d: %s", g.pod.name, peer.name, family, h.name)
						if err := passes(h.from(h.conversation), h.to(h.conversation), patience); err != nil {
							t.Fatalf("%s: before the policy: %v", h.name, err)
						}
						all = append(all, h)
					}
				}
			}
			g.policy("nothing-in", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}")
			g.expectPorts(g.near, g.pod)
			for _, h := range all {
				limit := patience
				if !h.allowed {
					limit = deniedFor
				}
				err := passes(h.from(h.conversation), h.to(h.conversation), limit)
				var timeout net.Error
				if h.allowed && err != nil {
					t.Errorf("%s: stops: %v", h.name, err)
				} else if !h.allowed && (err == nil || !errors.As(err, &timeout) || !timeout.Timeout()) {
					t.Errorf("%s: does not stop: %v", h.name, err)
				}
			}
		})
	}
}
