package neigh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// Another host of the link finds the addresses that the node answers for, and no others.
func TestProxy(t *testing.T) {
	node, host := newWire(t)
	pods := []netip.Addr{netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8::77")}
	own := macOf(t, node)
	foreign := proxy{addr: netip.MustParseAddr("192.0.2.99")}

	var up int
	devicetest.Inside(t, node, func() (err error) {
		if up, err = devicetest.IndexOf("up0"); err != nil {
			return err
		}
		if err := devicetest.AddVeth("pod0", "peer0"); err != nil {
			return err
		}
		pod, err := devicetest.IndexOf("pod0")
		if err != nil {
			return err
		}
		for _, a := range pods {
			if err := route.Add(route.Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: pod}); err != nil {
				return err
			}
		}
		_, forwards := sysctl.EnableForwarding("up0", true, true)
		_, answers := sysctl.EnableProxy("up0")
		foreign.device = up
		administrator := Entry{Device: up, Addr: foreign.addr, Flags: netlink.NTF_PROXY}
		return errors.Join(forwards, answers, administrator.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE))
	})
	expect := func(step string, want ...netip.Addr) {
		t.Helper()
		devicetest.Inside(t, node, func() error {
			for again := range 2 {
				changed, err := Proxy(map[int][]netip.Addr{up: want})
				if err != nil || again == 1 && changed != 0 {
					return fmt.Errorf("%s: %d changes, %w", step, changed, err)
				}
			}
			entries, err := dumpTable(unix.AF_UNSPEC, up, netlink.NTF_PROXY)
			if !slices.ContainsFunc(entries, func(e Entry) bool { return e.Addr == foreign.addr }) || len(entries) != len(want)+1 {
				t.Errorf("%s: the node answers for %v, want %v and %s", step, entries, want, foreign.addr)
			}
			return err
		})
		for _, a := range pods {
			if answered := resolves(t, host, a, own); answered != slices.Contains(want, a) {
				t.Errorf("%s: the node answers for %s: %t", step, a, answered)
			}
		}
	}
	expect("both families", pods...)
	expect("IPv4 only", pods[0])
	expect("none")
}

// resolves reports whether the host finds a MAC for an address, and fails the test if it is another one.
func resolves(t *testing.T, host ns.NetNS, a netip.Addr, want net.HardwareAddr) (found bool) {
	t.Helper()
	devicetest.Inside(t, host, func() error {
		index, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		_ = Entry{Device: index, Addr: a}.write(unix.RTM_DELNEIGH, 0)
		resolve := Entry{Device: index, Addr: a, Flags: netlink.NTF_USE}
		if err := resolve.write(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE); err != nil {
			return err
		}
		return devicetest.Eventually(func() error {
			entries, err := dump(unix.AF_UNSPEC, index)
			if err != nil {
				return err
			}
			for _, e := range entries {
				switch {
				case e.Addr != a:
				case e.State&netlink.NUD_FAILED != 0:
					return nil
				case e.State&Usable != 0:
					if found = true; e.MAC.String() != want.String() {
						t.Errorf("%s is at %s, want %s", a, e.MAC, want)
					}
					return nil
				}
			}
			return fmt.Errorf("%s is not resolved yet", a)
		})
	})
	return found
}
