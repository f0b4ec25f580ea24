package device

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
)

// awaitChange adds up changes until the sum satisfies done.
func awaitChange(t *testing.T, changes <-chan Change, done func(Change) bool) {
	t.Helper()
	var sum Change
	timeout := time.After(30 * time.Second)
	for !done(sum) {
		select {
		case change, ok := <-changes:
			if !ok {
				t.Fatalf("the monitor ended after %+v", sum)
			}
			if !change.Any() {
				t.Error("an empty change")
			}
			sum.merge(change)
		case <-timeout:
			t.Fatalf("no such change in time, only %+v", sum)
		}
	}
}

func TestMonitor(t *testing.T) {
	node := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var changes <-chan Change
	inside(t, node, func() (err error) {
		changes, err = Monitor(ctx, slog.New(slog.DiscardHandler))
		return err
	})
	var up int
	steps := []struct {
		name string
		act  func() error
		seen func(Change) bool
	}{
		{"address", func() error { return addAddress("up0", "192.0.2.7/32") }, func(c Change) bool { return c.Addresses }},
		{"route", func() error { return AddRoute(Route{Prefix: pod4, Device: up}) }, func(c Change) bool { return c.Routes }},
		{"neighbour", func() error { return SetNeighbour(up, pod4.Addr(), []byte{2, 0, 0, 0, 0, 1}) }, func(c Change) bool { return c.Neighbours }},
		{"MTU", func() error { return SetMTU(up, 1400) }, func(c Change) bool { return c.Links && len(c.GoneLinks) == 0 }},
		{"deletion", func() error {
			link, err := netlink.LinkByIndex(up)
			if err != nil {
				return err
			}
			return netlink.LinkDel(link)
		}, func(c Change) bool { return c.Links && slices.Contains(c.GoneLinks, up) }},
	}
	for _, step := range steps {
		inside(t, node, func() (err error) {
			if up == 0 {
				if up, err = indexOf("up0"); err != nil {
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

// The socket overflows: the kernel says ENOBUFS once, and everything must be reported as changed, by a new
// subscription in the same namespace.
func TestMonitorSurvivesLostMessages(t *testing.T) {
	node := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var here netns.NsHandle
	var socket *nl.NetlinkSocket
	inside(t, node, func() (err error) {
		if here, err = netns.Get(); err != nil {
			return err
		}
		if socket, err = networkFeed.subscribe(here); err != nil {
			return err
		}
		if err := socket.SetReceiveBufferSize(1, false); err != nil {
			return err
		}
		up, err := indexOf("up0")
		if err != nil {
			return err
		}
		for mtu := range 64 {
			if err := SetMTU(up, 1300+mtu); err != nil {
				return err
			}
		}
		return nil
	})
	defer here.Close()
	seen := make(chan Change)
	go networkFeed.watch(ctx, slog.New(slog.DiscardHandler), here, socket, seen)
	awaitChange(t, seen, func(c Change) bool { return c.Links && c.Addresses && c.Routes && c.Neighbours })

	inside(t, node, func() error { return addAddress("up0", "192.0.2.7/32") })
	awaitChange(t, seen, func(c Change) bool { return c.Addresses })
}

func TestMonitorSurvivesABrokenSocket(t *testing.T) {
	node := newNode(t)
	var here netns.NsHandle
	var socket *nl.NetlinkSocket
	inside(t, node, func() (err error) {
		if here, err = netns.Get(); err != nil {
			return err
		}
		socket, err = networkFeed.subscribe(here)
		return err
	})
	defer here.Close()
	socket.Close()
	seen := make(chan Change)
	go networkFeed.watch(t.Context(), slog.New(slog.DiscardHandler), here, socket, seen)
	awaitChange(t, seen, func(c Change) bool { return c.Links && c.Addresses && c.Routes && c.Neighbours })
}

func TestCollectAddsUp(t *testing.T) {
	seen, changes := make(chan Change), make(chan Change)
	go collect(seen, changes)
	// Nobody receives: everything ends up in one change.
	seen <- Change{Links: true, GoneLinks: []int{7}}
	seen <- Change{Routes: true}
	time.Sleep(2 * settle)
	seen <- Change{Neighbours: true, GoneLinks: []int{3, 7}}
	if diff := cmp.Diff(Change{Links: true, Routes: true, Neighbours: true, GoneLinks: []int{3, 7}}, <-changes); diff != "" {
		t.Error(diff)
	}
	close(seen)
	if _, ok := <-changes; ok {
		t.Error("a change out of nothing")
	}
}

func TestChangeOf(t *testing.T) {
	link := func(family byte, index uint32) []byte {
		return binary.NativeEndian.AppendUint32([]byte{family, 0, 0, 0}, index)
	}
	full := func(data []byte) []byte { return append(data, make([]byte, unix.SizeofIfInfomsg-len(data))...) }
	tests := []struct {
		name string
		kind uint16
		data []byte
		want Change
	}{
		{"device gone", unix.RTM_DELLINK, full(link(unix.AF_UNSPEC, 5)), Change{Links: true, GoneLinks: []int{5}}},
		{"left a bridge", unix.RTM_DELLINK, full(link(unix.AF_BRIDGE, 5)), Change{Links: true}},
		{"device changed", unix.RTM_NEWLINK, full(link(unix.AF_UNSPEC, 5)), Change{Links: true}},
		{"truncated", unix.RTM_DELLINK, link(unix.AF_UNSPEC, 5), Change{Links: true}},
		{"neighbour", unix.RTM_NEWNEIGH, []byte{unix.AF_INET6}, Change{Neighbours: true}},
		{"forwarding table", unix.RTM_NEWNEIGH, []byte{unix.AF_BRIDGE}, Change{}},
		{"something else", unix.RTM_NEWQDISC, nil, Change{}},
	}
	for _, test := range tests {
		got := changeOf(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: test.kind}, Data: test.data})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestMonitorEndsWhileNobodyReceives(t *testing.T) {
	node := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	var changes <-chan Change
	inside(t, node, func() (err error) {
		changes, err = Monitor(ctx, slog.New(slog.DiscardHandler))
		return errors.Join(err, addAddress("up0", "192.0.2.7/32"))
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

// What all nodes of a large link change at once is not lost while nobody receives.
func TestMonitorKeepsABurst(t *testing.T) {
	node := newNode(t)
	var socket *nl.NetlinkSocket
	const neighbours = 600
	inside(t, node, func() error {
		here, err := netns.Get()
		if err != nil {
			return err
		}
		defer here.Close()
		if socket, err = networkFeed.subscribe(here); err != nil {
			return err
		}
		up, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		for i := range neighbours {
			a := netip.AddrFrom4([4]byte{10, 77, byte(i >> 8), byte(i)})
			if err := SetNeighbour(up.Attrs().Index, a, []byte{2, 0, 0, 0, byte(i >> 8), byte(i)}); err != nil {
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
