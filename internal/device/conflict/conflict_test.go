package conflict

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// link is a node and another host on one link. The host has 192.0.2.9 and 2001:db8::9.
type link struct {
	node, host       ns.NetNS
	device, theirs   Device
	deviceName, name string
}

func newLink(t *testing.T) *link {
	l := &link{node: testenv.NewNetns(t), host: testenv.NewNetns(t), deviceName: "up0", name: "eth0"}
	devicetest.Inside(t, l.node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = l.deviceName
		pair := netlink.NewVeth(attrs)
		pair.PeerName, pair.PeerNamespace = l.name, netlink.NsFd(int(l.host.Fd()))
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		return l.up(l.deviceName, &l.device)
	})
	devicetest.Inside(t, l.host, func() error {
		if err := l.up(l.name, &l.theirs); err != nil {
			return err
		}
		return errors.Join(devicetest.AddAddress(l.name, "192.0.2.9/24"), devicetest.AddAddress(l.name, "2001:db8::9/64"))
	})
	return l
}

func (l *link) up(name string, device *Device) error {
	found, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	*device = Device{Index: found.Attrs().Index, MAC: found.Attrs().HardwareAddr}
	return netlink.LinkSetUp(found)
}

// A host that looks whether an address is free learns that the node has it.
func TestDefend(t *testing.T) {
	l := newLink(t)
	mine := netip.MustParseAddr("192.0.2.20")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	asked := map[netip.Addr]int{}
	go func() {
		done <- l.node.Do(func(ns.NetNS) error {
			return Defend(ctx, l.device, func(a netip.Addr) (bool, error) {
				asked[a]++
				return a == mine, nil
			})
		})
	}()
	devicetest.Inside(t, l.host, func() error {
		if err := devicetest.Eventually(func() error { // it may not have begun yet
			var inUse *InUseError
			if err := Probe(t.Context(), l.theirs, mine); !errors.As(err, &inUse) || inUse.MAC.String() != l.device.MAC.String() {
				return fmt.Errorf("probe %s: %w, want it in use by %s", mine, err, l.device.MAC)
			}
			return nil
		}); err != nil {
			return err
		}
		if err := Announce(l.theirs, netip.MustParseAddr("192.0.2.22")); err != nil {
			return err
		}
		return Probe(t.Context(), l.theirs, netip.MustParseAddr("192.0.2.21"))
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if asked[mine] == 0 || asked[netip.MustParseAddr("192.0.2.21")] == 0 || len(asked) != 2 {
		t.Errorf("probes for %v", asked)
	}
}

func TestProbe(t *testing.T) {
	l := newLink(t)
	devicetest.Inside(t, l.node, func() error {
		for _, used := range []string{"192.0.2.9", "2001:db8::9"} {
			err := devicetest.Eventually(func() error { // the link may not be up yet
				var inUse *InUseError
				if err := Probe(t.Context(), l.device, netip.MustParseAddr(used)); !errors.As(err, &inUse) || inUse.MAC.String() != l.theirs.MAC.String() {
					return fmt.Errorf("probe %s: %w, want it in use by %s", used, err, l.theirs.MAC)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		for _, free := range []string{"192.0.2.10", "2001:db8::10"} {
			if err := Probe(t.Context(), l.device, netip.MustParseAddr(free)); err != nil {
				t.Errorf("probe an address that is free: %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := Probe(ctx, l.device, netip.MustParseAddr("192.0.2.10")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("probe with 20 ms: %v", err)
		}
		return nil
	})
}

// Of two nodes that probe for one address at once, at most one takes it for free.
func TestProbesAtOnce(t *testing.T) {
	l := newLink(t)
	for round := range 10 {
		for _, prefix := range []string{"192.0.2.%d", "2001:db8::%d"} {
			a := netip.MustParseAddr(fmt.Sprintf(prefix, 20+round))
			begin, errs := make(chan struct{}), make(chan error, 2)
			for namespace, device := range map[ns.NetNS]Device{l.node: l.device, l.host: l.theirs} {
				go func() {
					errs <- namespace.Do(func(ns.NetNS) error {
						<-begin
						return Probe(t.Context(), device, a)
					})
				}()
			}
			close(begin)
			one, other := <-errs, <-errs
			var inUse *InUseError
			if !errors.As(one, &inUse) && !errors.As(other, &inUse) {
				t.Errorf("both probed %s: %v, %v", a, one, other)
			}
		}
	}
}

// An announcement replaces the MAC that another host knows for an address.
func TestAnnounce(t *testing.T) {
	l := newLink(t)
	for _, address := range []string{"192.0.2.30", "2001:db8::30"} {
		a := netip.MustParseAddr(address)
		stale := net.HardwareAddr{2, 0, 0, 0, 0, 9}
		devicetest.Inside(t, l.host, func() error {
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.theirs.Index, IP: a.AsSlice(), HardwareAddr: stale, State: unix.NUD_STALE})
		})
		devicetest.Inside(t, l.host, func() error {
			return devicetest.Eventually(func() error { // the link may not be up yet
				if err := l.node.Do(func(ns.NetNS) error { return Announce(l.device, a) }); err != nil {
					return err
				}
				known, err := netlink.NeighList(l.theirs.Index, netlink.FAMILY_ALL)
				if err != nil {
					return err
				}
				for _, n := range known {
					if n.IP.Equal(a.AsSlice()) && n.HardwareAddr.String() == l.device.MAC.String() {
						return nil
					}
				}
				return fmt.Errorf("the host does not know %s at %s: %v", a, l.device.MAC, known)
			})
		})
	}
}

// What other hosts send never ends the agent, and claims nothing by accident.
func FuzzClaimant(f *testing.F) {
	own := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	v4, v6 := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")
	for _, frame := range [][]byte{probeFrame(own, v4), announcementFrame(own, v4), probeFrame(own, v6), announcementFrame(own, v6), nil} {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, a := range []netip.Addr{v4, v6} {
			if mac := claimant(frame, a); mac != nil && len(mac) != macLength {
				t.Errorf("claimed by %q", mac)
			}
		}
	})
}

func TestClaimant(t *testing.T) {
	other := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	v4, v6 := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")
	routed := announcementFrame(other, v6)
	routed[ipv6HopLimit] = 64
	for name, c := range map[string]struct {
		frame  []byte
		a      netip.Addr
		claims bool
	}{
		"ARP announcement":               {announcementFrame(other, v4), v4, true},
		"ARP probe":                      {probeFrame(other, v4), v4, true},
		"ARP request for it":             {arpFrame(other, netip.MustParseAddr("192.0.2.7"), v4), v4, false},
		"ARP of another address":         {announcementFrame(other, netip.MustParseAddr("192.0.2.7")), v4, false},
		"truncated ARP":                  {announcementFrame(other, v4)[:arpLength-1], v4, false},
		"advertisement":                  {announcementFrame(other, v6), v6, true},
		"solicitation from ::":           {probeFrame(other, v6), v6, true},
		"solicitation of a neighbour":    {neighbourFrame(other, netip.MustParseAddr("fe80::7"), v6, append([]byte{solicit, 0, 0, 0, 0, 0, 0, 0}, v6.AsSlice()...)), v6, false},
		"advertisement that was routed":  {routed, v6, false},
		"advertisement of another":       {announcementFrame(other, netip.MustParseAddr("2001:db8::7")), v6, false},
		"IPv6 frame for an IPv4 address": {announcementFrame(other, v6), v4, false},
	} {
		if got := claimant(c.frame, c.a); (got != nil) != c.claims || c.claims && got.String() != other.String() {
			t.Errorf("%s: claimed by %v, want a claim: %t", name, got, c.claims)
		}
	}
}
