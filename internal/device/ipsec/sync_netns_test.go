package ipsec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// peerCount is less than a large cluster has: an emulated machine takes 15 ms for a state, whose key it expands in software.
const peerCount = 100

// tunnelsOf are the tunnels of one direction of a node with this number, of both families.
func tunnelsOf(number, generation int) []Tunnel {
	var all []Tunnel
	for _, ipv6 := range []bool{false, true} {
		t := Tunnel{SPI: uint32(1<<20 + number*16 + generation*2), Key: make([]byte, 36), IPv6: ipv6}
		if ipv6 {
			t.SPI++
		}
		binary.BigEndian.PutUint32(t.Key, t.SPI)
		all = append(all, t)
	}
	return all
}

// manyPeers are nodes with two pod ranges and two addresses each. Some ranges have zeros only after their first 32 bits.
func manyPeers(local netip.Addr) (all []Peer) {
	for i := range peerCount {
		in, out := tunnelsOf(i, 0), tunnelsOf(i, 0)
		all = append(all, Peer{
			Name: fmt.Sprint(i), Local: local, Remote: netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), In: in, Out: out,
			Use: map[bool]uint32{false: out[0].SPI, true: out[1].SPI},
			Prefixes: []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), netip.MustParsePrefix(fmt.Sprintf("fd00:%x::/64", i+1)),
				netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 32), netip.MustParsePrefix(fmt.Sprintf("2001:db8::%x/128", i+1)),
			},
		})
	}
	return all
}

// syncNow is Sync with what the kernel has now.
func syncNow(spec Spec, attach func(int) error) (Synced, error) {
	present, err := ReadStates()
	if err != nil {
		return Synced{}, err
	}
	return Sync(present, spec, attach)
}

// needIPsec skips the test on kernels without ESP: test/vm has kernels with it, and loads the module.
func needIPsec(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	if _, err := os.Stat("/sys/module/esp4"); err != nil {
		testenv.Missing(t, "not on this kernel: IPsec (CONFIG_INET_ESP)")
	}
}

// The kernel has the states and policies of the specification after each Sync, for many nodes. The log has the times.
func TestSyncManyPeers(t *testing.T) {
	needIPsec(t)
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		spec := Spec{MTU: 1446, Addresses: []netip.Addr{netip.MustParseAddr("172.31.0.1")}, Peers: manyPeers(netip.MustParseAddr("172.31.0.1"))}
		sync := func(what string) error {
			begin := time.Now()
			_, err := syncNow(spec, func(int) error { return nil })
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			t.Logf("%s: %v", what, time.Since(begin).Round(100*time.Microsecond))
			return checkKernel(t, what, spec)
		}
		if err := sync("all peers"); err != nil {
			return err
		}
		if err := sync("nothing"); err != nil {
			return err
		}
		one := &spec.Peers[peerCount/2]
		one.Prefixes = append(slices.Clone(one.Prefixes), netip.MustParsePrefix("10.200.0.7/32"))
		if err := sync("one address more"); err != nil {
			return err
		}
		for i := range spec.Peers {
			p := &spec.Peers[i]
			p.In, p.Out = append(p.In, tunnelsOf(i, 1)...), append(p.Out, tunnelsOf(i, 1)...)
			p.Use = map[bool]uint32{false: p.Out[2].SPI, true: p.Out[3].SPI}
		}
		if err := sync("another generation of keys"); err != nil {
			return err
		}
		for i := range spec.Peers {
			p := &spec.Peers[i]
			p.In, p.Out = p.In[2:], p.Out[2:]
		}
		if err := sync("without the first generation"); err != nil {
			return err
		}
		spec.Peers, spec.Partial = spec.Peers[1:2], true
		if _, err := syncNow(spec, nil); err != nil {
			return err
		}
		if present, err := ourStates(); err != nil || len(present) != 4*peerCount {
			t.Errorf("with a part of the peers the kernel has %d states, want %d: %v", len(present), 4*peerCount, err)
		}
		spec.Partial = false
		if err := sync("all but one"); err != nil {
			return err
		}
		link, err := netlink.LinkByName(Name)
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkDel(link), RemoveStates()); err != nil {
			return err
		}
		if left, err := ourStates(); err != nil || len(left) > 0 {
			t.Errorf("after the device was deleted, and the states, %d states are left: %v", len(left), err)
		}
		if err := sync("made again"); err != nil {
			return err
		}
		removed, err := Remove()
		if err != nil || !removed {
			t.Errorf("remove: %v, %v", removed, err)
		}
		states, errStates := ourStates()
		policies, errPolicies := ourPolicies()
		if err := errors.Join(errStates, errPolicies); err != nil || len(states)+len(policies) > 0 {
			t.Errorf("left are %d states and %d policies: %v", len(states), len(policies), err)
		}
		rules, err := netlink.RuleList(netlink.FAMILY_ALL)
		for _, r := range rules {
			if r.OifName == Name {
				t.Errorf("left is the rule %s", r)
			}
		}
		return err
	})
}

// checkKernel compares the states and policies of the kernel with the specification.
func checkKernel(t *testing.T, what string, spec Spec) error {
	present, err := ourStates()
	if err != nil {
		return err
	}
	has := map[stateKey]int{}
	for i := range present {
		has[keyOf(&present[i])]++
	}
	for _, p := range spec.Peers {
		for _, tunnel := range p.In {
			has[stateKey{p.Local, tunnel.SPI}]--
		}
		for _, tunnel := range p.Out {
			has[stateKey{p.Remote, tunnel.SPI}]--
		}
	}
	for key, n := range has {
		if n != 0 {
			t.Errorf("%s: %d states more than wanted to %s with SPI %#x", what, n, key.to, key.spi)
		}
	}
	policies, err := ourPolicies()
	if err != nil {
		return err
	}
	wanted := policiesOf(spec)
	if len(policies) != len(wanted) {
		t.Errorf("%s: the kernel has %d policies, want %d", what, len(policies), len(wanted))
	}
	for p, n := range wanted {
		if policies[p] != n {
			t.Errorf("%s: policy for %s needs %v, want %v", what, p.to, policies[p], n)
		}
	}
	return nil
}

// MTU is exact: research on the kernel found 1446 and 1426 for an uplink of 1500 bytes.
func TestMTU(t *testing.T) {
	for _, c := range []struct {
		uplink, ipv4, ipv6 int
	}{{1500, 1446, 1426}, {9000, 8946, 8926}, {1501, 1446, 1426}, {1504, 1450, 1430}} {
		if got := MTU(c.uplink, netip.IPv4Unspecified()); got != c.ipv4 {
			t.Errorf("over IPv4 with an uplink of %d bytes: %d, want %d", c.uplink, got, c.ipv4)
		}
		if got := MTU(c.uplink, netip.IPv6Unspecified()); got != c.ipv6 {
			t.Errorf("over IPv6 with an uplink of %d bytes: %d, want %d", c.uplink, got, c.ipv6)
		}
	}
}
