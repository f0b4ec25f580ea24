package fwd_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// ping sends an echo request and returns a function that waits for the reply, which must come from its destination.
func ping(p netlab.Netns, tb testing.TB, from, to netip.Addr, identifier uint16, say string) func() error {
	tb.Helper()
	c := p.ListenICMP(tb, from)
	request := append([]byte{8, 0, 0, 0, 0, 0, 0, 1}, say...)
	binary.BigEndian.PutUint16(request[4:], identifier)
	reply := byte(0)
	if from.Is6() {
		request[0], reply = 128, 129 // the kernel fills in the checksum
	} else {
		binary.BigEndian.PutUint16(request[2:], ^fixtures.Checksum(request))
	}
	if _, err := c.WriteTo(request, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		tb.Fatal(err)
	}
	return func() error {
		sender, err := netlab.AwaitICMP(c, func(kind, _ byte, body []byte) bool {
			return kind == reply && binary.BigEndian.Uint16(body) == identifier && string(body[4:]) == say
		})
		if err == nil && sender != to {
			err = fmt.Errorf("echo request to %s, reply of %s", to, sender)
		}
		return err
	}
}

// A pod and an external host ping each other at the same time with the same identifier, inside and outside the NAT
// port range: both get their replies.
func TestEchoesCross(t *testing.T) {
	for _, routing := range []bool{true, false} {
		t.Run(fmt.Sprintf("ebpf=%t", routing), func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: routing, Masquerade: true}})
			for _, family := range fixtures.Families {
				pod, host := n.A1.Addr(family), n.ExternalOnSwitch(family)
				for _, identifier := range []uint16{7, 50000} {
					// Either may be first, and both continue.
					for i, first := range []bool{true, false, true} {
						say := fmt.Sprintf("%d of %d", i, identifier)
						var waits []func() error
						for _, podAsks := range []bool{first, !first} {
							if podAsks {
								waits = append(waits, ping(n.A1.Netns, t, pod, host, identifier, "the pod's "+say))
							} else {
								waits = append(waits, ping(*n.External, t, host, pod, identifier, "the external host's "+say))
							}
						}
						for j, wait := range waits {
							if err := wait(); err != nil {
								t.Errorf("IPv%d, identifier %d, pod first: %t, question %d: %v", family, identifier, first, j, err)
							}
						}
					}
				}
			}
			n.DropsNothing(t)
		})
	}
}
