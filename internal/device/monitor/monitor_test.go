package monitor

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// awaitChange merges changes until the result satisfies done.
func awaitChange(t *testing.T, changes <-chan Change, done func(Change) bool) {
	t.Helper()
	var sum Change
	timeout := time.After(30 * time.Second)
	for !done(sum) {
		select {
		case change, ok := <-changes:
			if !ok {
				t.Fatalf("the channel closed after %+v", sum)
			}
			if !change.any() {
				t.Error("an empty change")
			}
			sum.merge(change)
		case <-timeout:
			t.Fatalf("want another change within 30 s, got %+v", sum)
		}
	}
}

func TestWatch(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var changes <-chan Change
	devicetest.Inside(t, node, func() (err error) {
		changes, err = Watch(ctx, slog.New(slog.DiscardHandler))
		return err
	})
	var up, host int
	ofNode := func(c Change) bool { return c.Node }
	ofPods := func(c Change) bool { return c.Pods && !c.Node }
	steps := []struct {
		name string
		act  func() error
		seen func(Change) bool
	}{
		{"address", func() error { return devicetest.AddAddress("up0", "192.0.2.7/32") }, ofNode},
		{"route", func() error { return route.Add(route.Route{Prefix: devicetest.Pod4, Device: up}) }, ofNode},
		{"unreachable route", func() error {
			return route.Add(route.Route{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Unreachable: true})
		}, ofNode},
		{"neighbour", func() error { return neigh.SetPermanent(up, devicetest.Pod4.Addr(), []byte{2, 0, 0, 0, 0, 1}) }, ofNode},
		{"MTU", func() error { return netdev.SetMTU(up, 1400) }, ofNode},
		{"a pod's pair", func() error {
			pair, err := device.Pods.Create(device.PodSpec{Kind: device.Veth, ContainerID: "one", IfName: "eth0", Netns: pod.Path()})
			host = pair.HostIndex
			return errors.Join(err, device.Pods.Open(host))
		}, ofPods},
		{"a pod's route", func() error {
			return route.Add(route.Route{Prefix: netip.MustParsePrefix("10.1.0.7/32"), Device: host})
		}, ofPods},
		{"a pod's neighbour", func() error { return neigh.SetPermanent(host, devicetest.Pod4.Addr(), []byte{2, 0, 0, 0, 0, 1}) }, ofPods},
		{"a pod's MTU", func() error { return netdev.SetMTU(host, 1400) }, ofPods},
		{"address at a pod's device", func() error { return devicetest.AddAddress(device.HostName("one", "eth0"), "192.0.2.8/32") }, ofPods},
		{"deletion of a pod's device", func() error { return devicetest.DeleteLink(host) }, func(c Change) bool { return ofPods(c) && slices.Equal(c.GoneHostEnds, []int{host}) }},
		{"deletion", func() error { return devicetest.DeleteLink(up) }, ofNode},
	}
	for _, step := range steps {
		for quiet := false; !quiet; { // drain the changes of the previous step
			select {
			case <-changes:
			case <-time.After(300 * time.Millisecond):
				quiet = true
			}
		}
		devicetest.Inside(t, node, func() (err error) {
			if up == 0 {
				if up, err = devicetest.IndexOf("up0"); err != nil {
					return err
				}
			}
			return step.act()
		})
		t.Log(step.name)
		awaitChange(t, changes, step.seen)
	}
	cancel()
	for ok := true; ok; {
		_, ok = <-changes // until it is closed
	}
}

// The socket overflows: the kernel returns ENOBUFS once. Watch subscribes again in the same namespace and reports a change of the node.
func TestWatchSurvivesLostMessages(t *testing.T) {
	node := devicetest.NewNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var here netns.NsHandle
	var socket *nl.NetlinkSocket
	devicetest.Inside(t, node, func() (err error) {
		if here, err = netns.Get(); err != nil {
			return err
		}
		if socket, err = subscribe(here); err != nil {
			return err
		}
		if err := socket.SetReceiveBufferSize(1, false); err != nil {
			return err
		}
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		for mtu := range 64 {
			if err := netdev.SetMTU(up, 1300+mtu); err != nil {
				return err
			}
		}
		return nil
	})
	defer here.Close()
	seen := make(chan Change)
	go (&monitor{slog.New(slog.DiscardHandler), here, seen, map[int]bool{}, map[neighKey]neighState{}}).watch(ctx, socket)
	awaitChange(t, seen, func(c Change) bool { return c.Node })

	devicetest.Inside(t, node, func() error { return devicetest.AddAddress("up0", "192.0.2.7/32") })
	awaitChange(t, seen, func(c Change) bool { return c.Node })
}

func TestWatchSurvivesAFailedSocket(t *testing.T) {
	node := devicetest.NewNode(t)
	var here netns.NsHandle
	var socket *nl.NetlinkSocket
	devicetest.Inside(t, node, func() (err error) {
		if here, err = netns.Get(); err != nil {
			return err
		}
		socket, err = subscribe(here)
		return err
	})
	defer here.Close()
	socket.Close()
	seen := make(chan Change)
	go (&monitor{slog.New(slog.DiscardHandler), here, seen, map[int]bool{}, map[neighKey]neighState{}}).watch(t.Context(), socket)
	awaitChange(t, seen, func(c Change) bool { return c.Node })
}

func TestCollectMerges(t *testing.T) {
	seen, changes := make(chan Change), make(chan Change)
	go collect(seen, changes)
	// Without a receiver all changes are merged into one.
	seen <- Change{Pods: true, GoneHostEnds: []int{3}}
	time.Sleep(2 * coalesce)
	seen <- Change{Node: true, GoneHostEnds: []int{5}}
	if got := <-changes; !got.Pods || !got.Node || !slices.Equal(got.GoneHostEnds, []int{3, 5}) {
		t.Errorf("got %+v", got)
	}
	close(seen)
	if _, ok := <-changes; ok {
		t.Error("a change although nothing changed")
	}
}

// A message that cannot be parsed is a change of the node.
func TestChangeOf(t *testing.T) {
	at := func(family byte, index uint32) []byte {
		return binary.NativeEndian.AppendUint32([]byte{family, 0, 0, 0}, index)
	}
	full := func(data []byte) []byte { return append(data, make([]byte, unix.SizeofIfInfomsg-len(data))...) }
	node, pods := Change{Node: true}, Change{Pods: true}
	tests := []struct {
		name string
		kind uint16
		data []byte
		want Change
	}{
		{"device of no kind", unix.RTM_NEWLINK, full(at(unix.AF_UNSPEC, 6)), node},
		{"left a bridge", unix.RTM_DELLINK, full(at(unix.AF_BRIDGE, 5)), node},
		{"truncated device", unix.RTM_DELLINK, at(unix.AF_UNSPEC, 5), node},
		{"address", unix.RTM_NEWADDR, at(unix.AF_INET, 6), node},
		{"address of a pod's device", unix.RTM_NEWADDR, at(unix.AF_INET, 5), pods},
		{"truncated address", unix.RTM_NEWADDR, []byte{unix.AF_INET}, node},
		{"neighbour", unix.RTM_NEWNEIGH, at(unix.AF_INET6, 6), node},
		{"neighbour at a pod's device", unix.RTM_DELNEIGH, at(unix.AF_INET6, 5), pods},
		{"forwarding table", unix.RTM_NEWNEIGH, at(unix.AF_BRIDGE, 6), Change{}},
		{"truncated route", unix.RTM_NEWROUTE, []byte{unix.AF_INET}, node},
		{"rule", unix.RTM_NEWRULE, nil, node},
		{"something else", unix.RTM_NEWQDISC, nil, Change{}},
		{"a pod's device gone", unix.RTM_DELLINK, full(at(unix.AF_UNSPEC, 7)), Change{Pods: true, GoneHostEnds: []int{7}}},
		{"address of that device", unix.RTM_DELADDR, at(unix.AF_INET, 7), node},
		{"a pod's device that is another now", unix.RTM_NEWLINK, full(at(unix.AF_UNSPEC, 5)), node},
		{"address of that device", unix.RTM_NEWADDR, at(unix.AF_INET, 5), node},
	}
	m := &monitor{hostEnds: map[int]bool{5: true, 7: true}, neighbours: map[neighKey]neighState{}}
	for _, test := range tests {
		got := m.changeOf(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: test.kind}, Data: test.data})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestWatchEndsWithoutReceiver(t *testing.T) {
	node := devicetest.NewNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	var changes <-chan Change
	devicetest.Inside(t, node, func() (err error) {
		changes, err = Watch(ctx, slog.New(slog.DiscardHandler))
		return errors.Join(err, devicetest.AddAddress("up0", "192.0.2.7/32"))
	})
	cancel()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case _, ok := <-changes:
			if !ok {
				return
			}
		case <-timeout:
			t.Fatal("the channel is still open")
		}
	}
}

// The receive buffer holds the changes of all nodes on a large link.
func TestSubscriptionHoldsABurst(t *testing.T) {
	node := devicetest.NewNode(t)
	var socket *nl.NetlinkSocket
	const neighbours = 600
	devicetest.Inside(t, node, func() error {
		here, err := netns.Get()
		if err != nil {
			return err
		}
		defer here.Close()
		if socket, err = subscribe(here); err != nil {
			return err
		}
		up, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		for i := range neighbours {
			a := netip.AddrFrom4([4]byte{10, 77, byte(i >> 8), byte(i)})
			if err := neigh.SetPermanent(up.Attrs().Index, a, []byte{2, 0, 0, 0, byte(i >> 8), byte(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	defer socket.Close()
	for got := 0; got < neighbours; {
		messages, _, err := socket.Receive()
		if err != nil {
			t.Fatalf("after %d of %d: %v", got, neighbours, err)
		}
		got += len(messages)
	}
}
