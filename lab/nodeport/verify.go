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
)

// patience is how long a Service may take until it works.
const patience = 30 * time.Second

// verifyTCP proves that a client outside gets an answer through a NodePort, whole packets and both ways.
func (b *Testbed) verifyTCP(ctx context.Context) error {
	const port = firstTCP
	listener, err := echo(ctx, b.lab.Place(b.backend), netip.AddrPortFrom(b.backendAddress(), port))
	if err != nil {
		return fmt.Errorf("verify %s: %w", b.network.Name(), err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	target := b.target(port, port)
	for {
		err := exchange(ctx, b.lab.Client(), target)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("verify %s: from outside to %s: %w", b.network.Name(), target, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// echo answers everything with itself until the listener is closed.
func echo(ctx context.Context, place testbed.Place, at netip.AddrPort) (listener net.Listener, err error) {
	err = place.Do(func() (err error) {
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
func exchange(ctx context.Context, from testbed.Place, to netip.AddrPort) error {
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
func (b *Testbed) verifyUDP(ctx context.Context) error {
	if err := b.arrange(result.OneCore, countPackets); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		const count, rate = 2000, 50000
		o, err := b.offer(ctx, packetgen.Load{Rate: rate, For: 5 * time.Second, Count: count})
		if err != nil {
			return fmt.Errorf("verify %s: %w", b.network.Name(), err)
		}
		if o.arrived == o.Frames {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("verify %s: %d of %d datagrams for %s arrived in the pod", b.network.Name(), o.arrived, o.Frames, b.target(udpNodePort, udpPort))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// routeThrough leads what goes between the client and pods of the second node through the first one, both ways, where no
// translation does that.
func (b *Testbed) routeThrough() error {
	by := b.forwarder().Addresses[b.family()].Addr()
	client := b.lab.ClientAddresses()[b.family()].Addr()
	for _, way := range []struct {
		at testbed.Place
		to netip.Prefix
	}{
		{b.lab.Client(), b.far().PodCIDRs[b.family()]},
		{b.far().Place(), netip.PrefixFrom(client, client.BitLen())},
	} {
		err := way.at.Netlink(func(h *netlink.Handle) error {
			return h.RouteAdd(&netlink.Route{Dst: testbed.IPNet(way.to), Gw: by.AsSlice()})
		})
		if err != nil {
			return fmt.Errorf("route to %s via %s: %w", way.to, by, err)
		}
	}
	return nil
}

// keepClients has the first node not tell clients on the wire of a shorter way: forwarding back to where packets come
// from is what is measured. Over IPv6 nodes tell of link-local next hops only (RFC 4861, 8.2), which nobody has here.
func (b *Testbed) keepClients() error {
	for _, device := range []string{"all", testbed.Uplink} {
		if err := b.forwarder().Place().WriteSysctl("net/ipv4/conf/"+device+"/send_redirects", "0"); err != nil {
			return err
		}
	}
	return nil
}
