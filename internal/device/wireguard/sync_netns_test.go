package wireguard

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// peerCount is a large cluster.
const peerCount = 1000

// manyPeers are nodes with two pod ranges and two addresses each.
func manyPeers() (all []Peer) {
	for i := range peerCount {
		p := Peer{Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 28781)}
		binary.BigEndian.PutUint32(p.PublicKey[4:], uint32(i+1))
		p.AllowedIPs = []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), netip.PrefixFrom(p.Endpoint.Addr(), 32),
			netip.MustParsePrefix(fmt.Sprintf("fd00:%x::/64", i+1)), netip.MustParsePrefix(fmt.Sprintf("2001:db8::%x/128", i+1)),
		}
		all = append(all, p)
	}
	return all
}

// peersOfKernel are the peers that the device has, without what changes by itself.
func peersOfKernel() (all map[Key]Peer, device *wgtypes.Device, err error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	if device, err = client.Device(Name); err != nil {
		return nil, nil, err
	}
	all = map[Key]Peer{}
	for _, p := range device.Peers {
		peer := Peer{PublicKey: p.PublicKey, Endpoint: p.Endpoint.AddrPort()}
		for _, a := range p.AllowedIPs {
			prefix, _ := rtnl.Prefix(&a)
			peer.AllowedIPs = append(peer.AllowedIPs, prefix)
		}
		slices.SortFunc(peer.AllowedIPs, netip.Prefix.Compare)
		all[p.PublicKey] = peer
	}
	return all, device, nil
}

// The kernel has the peers of the specification after each Sync, for a thousand nodes, and a change of one node writes that
// peer only. The log has the times.
func TestSyncThousandPeers(t *testing.T) {
	testenv.Root(t)
	if _, err := os.Stat("/sys/module/wireguard"); err != nil {
		testenv.Missing(t, "not on this kernel: WireGuard (CONFIG_WIREGUARD)")
	}
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{PrivateKey: key, Port: 28781, MTU: 1420, Addresses: []netip.Addr{netip.MustParseAddr("172.31.0.1")}, Peers: manyPeers()}
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		sync := func(what string) error {
			begin := time.Now()
			if _, _, err := Sync(spec, func(int) error { return nil }); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			t.Logf("%s: %v", what, time.Since(begin).Round(100*time.Microsecond))
			present, device, err := peersOfKernel()
			if err != nil {
				return err
			}
			want := map[Key]Peer{}
			for _, p := range spec.Peers {
				p.AllowedIPs = slices.SortedFunc(slices.Values(p.AllowedIPs), netip.Prefix.Compare)
				want[p.PublicKey] = p
			}
			same := func(a, b Peer) bool { return a.Endpoint == b.Endpoint && slices.Equal(a.AllowedIPs, b.AllowedIPs) }
			if !maps.EqualFunc(want, present, same) {
				t.Errorf("%s: the kernel has %d other peers than the %d wanted", what, len(present), len(want))
			}
			if change, needed := difference(device, spec); needed {
				t.Errorf("%s: the next Sync would write %+v", what, change)
			}
			return nil
		}
		changes := func(what string, want int) error {
			_, device, err := peersOfKernel()
			if err != nil {
				return err
			}
			change, _ := difference(device, spec)
			if change.PrivateKey != nil || change.ListenPort != nil || len(change.Peers) != want {
				t.Errorf("%s writes %+v, want %d peers", what, change, want)
			}
			return sync(what)
		}
		if err := sync("all peers"); err != nil {
			return err
		}
		if err := changes("nothing", 0); err != nil {
			return err
		}
		one := &spec.Peers[peerCount/2]
		one.AllowedIPs = append(slices.Clone(one.AllowedIPs), netip.MustParsePrefix("10.200.0.7/32"))
		if err := changes("one address more", 1); err != nil {
			return err
		}
		one.AllowedIPs = one.AllowedIPs[1:]
		if err := changes("a range less", 2); err != nil { // another peer takes it over and goes
			return err
		}
		one.Endpoint = netip.MustParseAddrPort("192.0.2.99:28781")
		if err := changes("another endpoint", 1); err != nil {
			return err
		}
		binary.BigEndian.PutUint32(one.PublicKey[4:], peerCount+1)
		if err := changes("another key", 2); err != nil {
			return err
		}
		spec.Peers = spec.Peers[1:]
		return changes("a node less", 1)
	})
}
