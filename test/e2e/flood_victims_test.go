package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// Timeouts of a victim's work. The kernel sends a SYN again after 1, 3 and 7 s; the victim repeats a query, as resolvers
// do.
const (
	victimPatience = 20 * time.Second
	queryPatience  = time.Second
	queryTries     = 5
)

// victim works while others flood: it takes its targets of both families in turn, and does the same work with each.
type victim struct {
	name    string
	netns   testbed.Netns
	targets []netip.AddrPort
	work    func(v *victim, to netip.AddrPort) error
	size    int // of a message
	every   time.Duration
	open    map[netip.AddrPort]net.Conn
	counter
}

// victims are all victims of a test.
type victims struct {
	all   []*victim
	stop  chan struct{}
	ended sync.WaitGroup
}

func (v *victims) start() {
	v.stop = make(chan struct{})
	for _, each := range v.all {
		v.ended.Go(func() {
			if err := each.netns.On(victimCPU).Do(func() error { each.run(v.stop); return nil }); err != nil {
				each.fail(err)
			}
		})
	}
}

func (v *victims) finish() {
	close(v.stop)
	v.ended.Wait()
}

// take resets the counters.
func (v *victims) take() {
	for _, each := range v.all {
		_, _, _, _ = each.take()
	}
}

// waitDone waits until each victim has finished work that it began after the call. Repeated queries take seconds.
func (v *victims) waitDone() {
	const begun = 2 // the first may have begun before the call
	began, before := time.Now(), map[*victim]int64{}
	for _, each := range v.all {
		before[each] = each.done.Load() + each.failed.Load()
	}
	for _, each := range v.all {
		for each.done.Load()+each.failed.Load() < before[each]+begun && time.Since(began) < 2*victimPatience {
			time.Sleep(time.Millisecond)
		}
	}
}

// expect fails the test if work has failed. It returns how much succeeded and how many queries were repeated.
func (v *victims) expect(t *testing.T) (done, repeated int64) {
	t.Helper()
	for _, each := range v.all {
		n, again, failed, errs := each.take()
		done += n
		repeated += again
		if failed > 0 {
			t.Errorf("%s: %d failed, %d succeeded: %v", each.name, failed, n, errs)
		}
	}
	return done, repeated
}

// run works until it is stopped, at its rate or slower.
func (v *victim) run(stop <-chan struct{}) {
	defer func() {
		for _, c := range v.open {
			_ = c.Close()
		}
	}()
	next := time.Now()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Until(next)):
		}
		if next = next.Add(v.every); time.Until(next) < -time.Second {
			next = time.Now() // skips missed work
		}
		to := v.targets[n%len(v.targets)]
		if err := v.work(v, to); err != nil {
			v.fail(fmt.Errorf("%s to %s: %w", v.name, to, err))
		} else {
			v.done.Add(1)
		}
	}
}

// asksOften sends a request over a connection that stays open.
func asksOften(v *victim, to netip.AddrPort) error {
	conn := v.open[to]
	if conn == nil {
		var err error
		if conn, err = net.DialTimeout("tcp", to.String(), victimPatience); err != nil {
			return err
		}
		if v.open == nil {
			v.open = map[netip.AddrPort]net.Conn{}
		}
		v.open[to] = conn
	}
	if err := exchange(conn, v.size, victimPatience); err != nil {
		_ = conn.Close()
		delete(v.open, to)
		return err
	}
	return nil
}

// connects sends a request over a connection of its own.
func connects(v *victim, to netip.AddrPort) error {
	conn, err := net.DialTimeout("tcp", to.String(), victimPatience)
	if err != nil {
		return err
	}
	err = exchange(conn, v.size, victimPatience)
	_ = conn.(*net.TCPConn).SetLinger(0) // no TIME_WAIT
	return errors.Join(err, conn.Close())
}

// queries sends a datagram from a port of its own and waits for the reply.
func queries(v *victim, to netip.AddrPort) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	for range queryTries {
		err = exchange(conn, v.size, queryPatience)
		if err == nil || !isTimeout(err) {
			return err
		}
		v.repeated.Add(1)
	}
	return err
}

// sendsPieces returns work that sends a query in two fragments. The pause between them is long enough for a flood of
// first fragments to fill the table.
func (f *floods) sendsPieces() func(v *victim, to netip.AddrPort) error {
	const pause = 50 * time.Millisecond
	from := f.podFlooder(f.other)
	return func(v *victim, to netip.AddrPort) error {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer conn.Close()
		message, reply := bytes.Repeat([]byte("?"), 48), make([]byte, 48)
		own := conn.LocalAddr().(*net.UDPAddr).AddrPort()
		ip := frame.IP{Source: own.Addr(), Destination: to.Addr(), Protocol: unix.IPPROTO_UDP}
		data := frame.UDP(own, to, message)
		for range queryTries {
			id := uint16(from.random.Uint32())
			for _, part := range [][2]int{{0, 32}, {32, len(data)}} {
				time.Sleep(time.Duration(min(part[0], 1)) * pause)
				bytes := frame.Ethernet(from.to, from.from, frame.EtherType(to.Addr()), ip.Piece(data, part[0], part[1], id).Packet())
				if _, err := unix.Write(from.fd, bytes); err != nil {
					return err
				}
			}
			if err := conn.SetReadDeadline(time.Now().Add(queryPatience)); err != nil {
				return err
			}
			if _, err = io.ReadFull(conn, reply); err == nil || !isTimeout(err) {
				return err
			}
			v.repeated.Add(1)
		}
		return err
	}
}

// waits sends queries with late replies: the node must keep their entries that long.
func waits(v *victim, to netip.AddrPort) (err error) {
	for range queryTries {
		if err = waitTogether(to); err == nil || !isTimeout(err) {
			return err
		}
		v.repeated.Add(1)
	}
	return err
}

// waitTogether sends a few such queries and expects all replies.
func waitTogether(to netip.AddrPort) error {
	const together = 4
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range together {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
	}
	for _, c := range conns {
		if err := c.SetReadDeadline(time.Now().Add(slowAnswer + queryPatience)); err != nil {
			return err
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return err
		}
	}
	return nil
}

// pings sends an echo request and waits for its reply.
func pings(v *victim, to netip.AddrPort) error {
	network, kind, reply := "ip4:icmp", byte(echoRequestIPv4), byte(echoReplyIPv4)
	if to.Addr().Is6() {
		network, kind, reply = "ip6:ipv6-icmp", echoRequestIPv6, echoReplyIPv6
	}
	socket, err := net.ListenPacket(network, "")
	if err != nil {
		return err
	}
	defer socket.Close()
	number := externalSequence.Add(1)
	data := binary.BigEndian.AppendUint32(nil, number)
	message := frame.ICMP(netip.IPv4Unspecified(), netip.IPv4Unspecified(), kind, 0, number<<16, data) // the kernel computes the ICMPv6 checksum
	for range queryTries {
		if _, err = socket.WriteTo(message, &net.IPAddr{IP: to.Addr().AsSlice()}); err != nil {
			return err
		}
		if err = socket.SetReadDeadline(time.Now().Add(queryPatience)); err != nil {
			return err
		}
		if _, err = externalMessage(socket, reply, data); err == nil || !isTimeout(err) {
			return err
		}
		v.repeated.Add(1)
	}
	return err
}

// isRejected sends a query to a Service without backends and expects an ICMP error; these are rate-limited per pod.
func isRejected(v *victim, to netip.AddrPort) error {
	switch err := queries(v, to); {
	case err == nil:
		return errors.New("got a reply, want ECONNREFUSED")
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("want ECONNREFUSED: %w", err)
	}
	return nil
}

// learnsMTU sends a packet that exceeds the path MTU, and waits until its kernel knows the MTU.
func learnsMTU(v *victim, to netip.AddrPort) error {
	probe := &pathProbe{ipv4: to.Addr().Is4()}
	var err error
	if probe.UDPConn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)); err != nil {
		return err
	}
	defer probe.Close()
	if err := probe.forbidFragments(); err != nil {
		return err
	}
	for range queryTries {
		mtu, err := probe.mtu()
		if err != nil {
			return err
		}
		_, _ = probe.Write(make([]byte, probe.payload(mtu))) // an error if the kernel knows the MTU already
		for began := time.Now(); time.Since(began) < queryPatience; time.Sleep(time.Millisecond) {
			if mtu, err = probe.mtu(); err != nil || mtu == narrowMTU {
				return err
			}
		}
		v.repeated.Add(1)
	}
	return errors.New("no ICMP error about packets that exceed the MTU")
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// exchange sends a message and expects it back.
func exchange(conn net.Conn, size int, limit time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	message, reply := bytes.Repeat([]byte("?"), max(size, 1)), make([]byte, max(size, 1))
	if _, err := conn.Write(message); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, reply); err != nil {
		return err
	}
	if !bytes.Equal(reply, message) {
		return fmt.Errorf("got %q", reply)
	}
	return nil
}

// serveVictims runs TCP and UDP echo servers.
func serveVictims(t *testing.T, at machine, port uint16) {
	t.Helper()
	for _, a := range at.addresses {
		to := netip.AddrPortFrom(a, port)
		serveEcho(t, at.netns, to)
		var socket net.PacketConn
		if err := at.netns.Do(func() (err error) {
			socket, err = net.ListenPacket("udp", to.String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { socket.Close() })
		if err := growReceiveBuffer(socket.(*net.UDPConn)); err != nil {
			t.Fatal(err)
		}
		go echoPackets(socket)
	}
}

// Port and delay of slow servers.
const (
	slowPort   = 8082
	slowAnswer = 400 * time.Millisecond
)

// serveSlowly replies to datagrams after slowAnswer.
func serveSlowly(t *testing.T, at machine, port uint16) {
	t.Helper()
	for _, a := range at.addresses {
		var socket net.PacketConn
		if err := at.netns.Do(func() (err error) {
			socket, err = net.ListenPacket("udp", netip.AddrPortFrom(a, port).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { socket.Close() })
		go func() {
			for {
				_, from, err := socket.ReadFrom(make([]byte, 1))
				if err != nil {
					return
				}
				time.AfterFunc(slowAnswer, func() { _, _ = socket.WriteTo([]byte("!"), from) })
			}
		}()
	}
}
