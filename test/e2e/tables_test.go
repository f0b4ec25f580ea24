package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Every kind of traffic leaves something in the tables of a node, and when it has ended all of that goes by the agent's own
// looks: at once what both ends have ended, the rest when its time is over. That is minutes, so the next agent's clock is ahead.
func TestTablesBecomeEmpty(t *testing.T) {
	t.Parallel()
	const (
		flag = "--services=ebpf"
		// ahead is more than any connection lasts that is not an established one of TCP.
		ahead = 5 * time.Minute
		// aLook is more than the time between two of the agent's looks and what an ended connection is kept for: a minute, where its
		// server has ended it first.
		aLook = 2 * time.Minute
	)
	b := newServiceLab(t)
	for _, server := range []machine{b.far, b.outside} {
		answer(t, server, backendPort)
		for _, a := range server.addresses {
			echo, err := externalEchoAt(server.place, netip.AddrPortFrom(a, backendPort))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { echo.Close() })
		}
	}
	const affinity = "  type: NodePort\n  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}"
	b.writeManifest("service.yaml", onNodes(serviceYAML("web", serviceOfFar, affinity, b.far)))
	b.waitServices(func(all []agentapi.ServicePort) error { return backendsAre(all, "web", 1) })

	paths := func(i int) []path {
		return []path{
			{b.outside, netip.AddrPortFrom(b.node.addresses[i], nodePort)},
			{b.pod, netip.AddrPortFrom(serviceOfFar[i], servicePort)},
			{b.pod, netip.AddrPortFrom(b.outside.addresses[i], backendPort)},
		}
	}
	for i := range b.node.addresses {
		for _, p := range paths(i) {
			for range 10 {
				if err := p.connect(); err != nil {
					t.Errorf("TCP from %s to %s: %v", p.from.name, p.to, err)
				}
			}
		}
	}
	b.wantEntries(b.here, "nat", "nat_pods", "affinities")
	b.waitEmpty(b.here, aLook, "nat", "nat_pending", "nat_pods")

	for i := range b.node.addresses {
		for _, p := range paths(i) {
			if err := p.send(4000); err != nil { // in pieces
				t.Errorf("UDP from %s to %s: %v", p.from.name, p.to, err)
			}
		}
		if _, err := externalPing(b.pod.place, b.outside.place, b.outside.addresses[i]); err != nil {
			t.Errorf("ping from %s to %s: %v", b.pod.name, b.outside.addresses[i], err)
		}
		b.expectRefusal(b.pod, b.outside, i)
	}
	all := []string{"nat", "nat_pending", "nat_pods", "fragments", "affinities"}
	b.wantEntries(b.here, all...)
	b.kill(b.here)
	b.startAhead(b.here, ahead, flag)
	b.waitReady(b.here)
	b.waitEmpty(b.here, aLook, all...)
}

// onNodes gives both ports of a Service of serviceYAML a port of nodes.
func onNodes(service []byte) []byte {
	for _, protocol := range []string{"TCP", "UDP"} {
		service = bytes.Replace(service, []byte("protocol: "+protocol), fmt.Appendf(nil, "protocol: %s, nodePort: %d", protocol, nodePort), 1)
	}
	return service
}

// path is where traffic goes. Its sockets are this process's, in no pod's cgroup: packets are what is translated.
type path struct {
	from machine
	to   netip.AddrPort
}

// connect opens a connection to an answer, and ends it, first as a rule.
func (p path) connect() error {
	return p.dial("tcp", func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "ask"); err != nil {
			return err
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		_, err := io.ReadAll(conn)
		return err
	})
}

// send sends a datagram to an echo.
func (p path) send(size int) error {
	return p.dial("udp", func(conn net.Conn) error {
		_, n, err := externalAsk(conn.(*net.UDPConn), size)
		if err == nil && n != size {
			err = fmt.Errorf("%d of %d bytes came back", n, size)
		}
		return err
	})
}

func (p path) dial(network string, use func(net.Conn) error) error {
	return p.from.place.Do(func() error {
		conn, err := net.DialTimeout(network, p.to.String(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		return use(conn)
	})
}

// wantEntries fails the test where one of the tables is empty: that it becomes so would show nothing.
func (c *cluster) wantEntries(n *node, tables ...string) {
	c.t.Helper()
	s := c.status(n)
	for _, table := range tables {
		if entries(s, table) <= 0 {
			c.t.Errorf("the traffic has left nothing in %s", table)
		}
	}
}

// waitEmpty waits until all of the tables are.
func (c *cluster) waitEmpty(n *node, within time.Duration, tables ...string) {
	c.t.Helper()
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		left := map[string]int{}
		s := c.status(n)
		for _, table := range tables {
			if count := entries(s, table); count != 0 {
				left[table] = count
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Since(begin) > within {
			c.t.Fatalf("entries left after %v: %v", within, left)
		}
	}
}

// startAhead starts an agent whose clock since boot is ahead of everybody else's, by a time namespace (time_namespaces(7)).
func (c *cluster) startAhead(n *node, by time.Duration, flags ...string) {
	c.t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		testenv.Missing(c.t, "no unshare (Debian package util-linux)")
	}
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		testenv.Missing(c.t, "not on this kernel: time namespaces (CONFIG_TIME_NS)")
	}
	cmd := c.agentCommand(n, current(c.t), flags...)
	within := []string{unshare, "--time", "--monotonic", strconv.Itoa(int(by.Seconds())), "--fork", "--kill-child", "--"}
	cmd.Path, cmd.Args = unshare, append(within, cmd.Args...)
	c.startAs(n, cmd)
}
