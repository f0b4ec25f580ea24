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

// Each kind of traffic makes entries in a node's maps. The agent's garbage collection removes them: closed connections
// soon, others after their timeouts of some minutes. Therefore the next agent's clock is ahead.
func TestTablesBecomeEmpty(t *testing.T) {
	t.Parallel()
	const (
		flag = "--services=ebpf"
		// ahead is longer than all timeouts except that of an established TCP connection.
		ahead = 5 * time.Minute
		// collected is longer than the garbage collection's interval and the timeout of a closed connection: a minute, if
		// the server closed first.
		collected = 2 * time.Minute
	)
	b := newServiceLab(t)
	for _, server := range []machine{b.far, b.outside} {
		serveName(t, server, backendPort)
		for _, a := range server.addresses {
			echo, err := externalEchoAt(server.netns, netip.AddrPortFrom(a, backendPort))
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
	b.waitEmpty(b.here, collected, "nat", "nat_pending", "nat_pods")

	for i := range b.node.addresses {
		for _, p := range paths(i) {
			if err := p.send(4000); err != nil { // in fragments
				t.Errorf("UDP from %s to %s: %v", p.from.name, p.to, err)
			}
		}
		if _, err := externalPing(b.pod.netns, b.outside.netns, b.outside.addresses[i]); err != nil {
			t.Errorf("ping from %s to %s: %v", b.pod.name, b.outside.addresses[i], err)
		}
		b.expectRejection(b.pod, b.outside, i)
	}
	all := []string{"nat", "nat_pending", "nat_pods", "fragments", "affinities"}
	b.wantEntries(b.here, all...)
	b.kill(b.here)
	b.startAhead(b.here, ahead, flag)
	b.waitReady(b.here)
	b.waitEmpty(b.here, collected, all...)
}

// onNodes adds a nodePort to both ports of a Service of serviceYAML.
func onNodes(service []byte) []byte {
	for _, protocol := range []string{"TCP", "UDP"} {
		service = bytes.Replace(service, []byte("protocol: "+protocol), fmt.Appendf(nil, "protocol: %s, nodePort: %d", protocol, nodePort), 1)
	}
	return service
}

// path is a client and a destination. Its sockets belong to this process, which is in no pod's cgroup, so packets are
// translated, not sockets.
type path struct {
	from machine
	to   netip.AddrPort
}

// connect sends a request over a new connection, and usually closes it first.
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

// send sends a datagram to an echo server.
func (p path) send(size int) error {
	return p.dial("udp", func(conn net.Conn) error {
		_, n, err := externalRequest(conn.(*net.UDPConn), size)
		if err == nil && n != size {
			err = fmt.Errorf("reply of %d bytes, want %d", n, size)
		}
		return err
	})
}

func (p path) dial(network string, use func(net.Conn) error) error {
	return p.from.netns.Do(func() error {
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

// wantEntries fails the test if one of the maps is empty.
func (c *cluster) wantEntries(n *node, tables ...string) {
	c.t.Helper()
	s := c.status(n)
	for _, table := range tables {
		if entries(s, table) <= 0 {
			c.t.Errorf("the traffic made no entry in %s", table)
		}
	}
}

// waitEmpty waits until all of the maps are empty.
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

// startAhead starts an agent in a time namespace (time_namespaces(7)) whose monotonic clock is ahead.
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
