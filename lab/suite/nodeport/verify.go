package nodeport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// patience is how long a Service may take to work.
const patience = 30 * time.Second

// verifyTCP proves that a client outside gets a reply through a NodePort, with whole packets in both directions.
func (m *member) verifyTCP(ctx context.Context) error {
	const port = firstTCP
	listener, err := echo(ctx, m.backend.Netns, netip.AddrPortFrom(m.backendAddress(), port))
	if err != nil {
		return fmt.Errorf("verify %s: %w", m.Name(), err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	target := m.target(port, port)
	for {
		err := exchange(ctx, m.Lab.Client(), target)
		if err == nil {
			return nil
		}
		if wait.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("verify %s: from outside to %s: %w", m.Name(), target, err)
		}
	}
}

// echo answers everything with itself until the listener is closed.
func echo(ctx context.Context, netns testbed.Netns, at netip.AddrPort) (listener net.Listener, err error) {
	err = netns.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", at.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(patience))
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener, nil
}

// exchange sends more than fits into buffers and packets of any size, and wants all of it back.
func exchange(ctx context.Context, from testbed.Netns, to netip.AddrPort) error {
	const bytes = 256 << 10
	var conn net.Conn
	err := from.Do(func() (err error) {
		conn, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, bytes))
		sent <- errors.Join(err, conn.(*net.TCPConn).CloseWrite())
	}()
	n, err := io.Copy(io.Discard, conn)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if n != bytes {
		return fmt.Errorf("%d of %d bytes came back", n, bytes)
	}
	return nil
}

// verifyUDP proves that frames of every flow come into the pod, and that none is counted that was not sent.
func (m *member) verifyUDP(ctx context.Context) error {
	if err := m.arrange(result.OneCore, countPackets); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		const count, rate = 2000, 50000
		o, err := m.offer(ctx, packetgen.Load{Rate: rate, For: 5 * time.Second, Count: count})
		if err != nil {
			return fmt.Errorf("verify %s: %w", m.Name(), err)
		}
		if o.arrived == o.Frames {
			return nil
		}
		if wait.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("verify %s: %d of %d datagrams for %s arrived in the pod", m.Name(), o.arrived, o.Frames, m.target(udpNodePort, udpPort))
		}
	}
}

// routeThrough routes traffic between the client and pods of the second node through the first one, in both directions,
// where no translation does that.
func (m *member) routeThrough() error {
	by := m.forwarder().Addresses[m.family()].Addr()
	client := m.Lab.ClientAddresses()[m.family()].Addr()
	for _, route := range []struct {
		at testbed.Netns
		to netip.Prefix
	}{
		{m.Lab.Client(), m.far().PodCIDRs[m.family()]},
		{m.far().Netns, netip.PrefixFrom(client, client.BitLen())},
	} {
		err := route.at.Netlink(func(h *netlink.Handle) error {
			return h.RouteAdd(&netlink.Route{Dst: testbed.IPNet(route.to), Gw: by.AsSlice()})
		})
		if err != nil {
			return fmt.Errorf("route to %s via %s: %w", route.to, by, err)
		}
	}
	return nil
}

// disableRedirects keeps the first node from sending ICMP redirects: the suite measures forwarding back to where
// packets come from. Over IPv6 a node redirects to link-local next hops only (RFC 4861, 8.2), which the lab does not
// have.
func (m *member) disableRedirects() error {
	for _, device := range []string{"all", testbed.Uplink} {
		if err := m.forwarder().WriteSysctl("net/ipv4/conf/"+device+"/send_redirects", "0"); err != nil {
			return err
		}
	}
	return nil
}
