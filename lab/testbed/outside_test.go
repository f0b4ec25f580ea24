package testbed

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// The client is on the wire: it reaches both nodes, and they reach each other and have a route to further clients.
func TestOutside(t *testing.T) {
	lab := up(t, Options{Name: "t-outside", Nodes: 2, Outside: true, IPv6: true})
	for _, n := range lab.Nodes() {
		for i, a := range n.Addresses {
			var listener net.Listener
			err := n.Do(func() (err error) {
				listener, err = net.Listen("tcp", netip.AddrPortFrom(a.Addr(), 0).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			err = lab.Client().Do(func() error {
				d := net.Dialer{Timeout: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: lab.ClientAddresses()[i].Addr().AsSlice()}}
				conn, err := d.DialContext(context.Background(), "tcp", listener.Addr().String())
				if err != nil {
					return err
				}
				return conn.Close()
			})
			if err != nil {
				t.Errorf("from outside to %s of %s: %v", a, n.Name, err)
			}
			listener.Close()
		}
		for i, client := range []string{"198.18.7.7", "2001:2::7"} {
			out, err := n.Output(t.Context(), "ip", "route", "get", client)
			if err != nil {
				t.Fatal(err)
			}
			if want := "via " + lab.ClientAddresses()[i].Addr().String() + " "; !strings.Contains(string(out), want) {
				t.Errorf("%s: route %q, want one via the client outside", n.Name, out)
			}
		}
	}
}

func TestOutsideWantsOneSubnet(t *testing.T) {
	if err := (Options{Name: "a", Nodes: 2, Subnets: 2, MTU: 1500, Outside: true}).Validate(); err == nil {
		t.Error("clients outside of two subnets are valid")
	}
}
