package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// The protocol numbers of ICMP for icmp.ParseMessage.
const (
	protocolICMP   = 1
	protocolICMPv6 = 58
)

// ping sends ICMP echo requests, each after the reply to the last.
func ping(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("ping", flag.ContinueOnError)
	size := flags.Int("bytes", 56, "payload of a request")
	count := flags.Int("count", 3, "how many requests")
	target, err := parse(flags, args)
	if err != nil {
		return err
	}
	to, err := netip.ParseAddr(target[0])
	if err != nil {
		return err
	}
	network, kind, protocol := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), protocolICMP
	if to.Is6() {
		network, kind, protocol = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, protocolICMPv6
	}
	conn, err := icmp.ListenPacket(network, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	for sequence := range *count {
		body := &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: sequence, Data: make([]byte, *size)}
		request, err := (&icmp.Message{Type: kind, Body: body}).Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(request, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			return err
		}
		if err := awaitReply(conn, protocol, body); err != nil {
			return fmt.Errorf("request %d of %d to %s: %w", sequence+1, *count, to, err)
		}
	}
	return nil
}

// awaitReply reads until the reply to this request: the socket receives every ICMP packet of the machine.
func awaitReply(conn *icmp.PacketConn, protocol int, request *icmp.Echo) error {
	if err := conn.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		message, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || message.Type != ipv4.ICMPTypeEchoReply && message.Type != ipv6.ICMPTypeEchoReply {
			continue
		}
		reply, is := message.Body.(*icmp.Echo)
		if is && reply.ID == request.ID && reply.Seq == request.Seq && len(reply.Data) == len(request.Data) {
			return nil
		}
	}
}
