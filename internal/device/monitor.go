package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Change says which of the kernel's tables changed since the Change before. It is a set, not a history:
// who gets one reads the tables that he cares for.
type Change struct {
	// Routes are the routing rules too.
	Links, Addresses, Routes, Neighbours bool
	// GoneLinks are the indexes of devices that were deleted or moved to another namespace, sorted. When
	// messages were lost it may be incomplete; the flags of all that was lost are set then.
	GoneLinks []int
}

// Any tells whether anything changed.
func (c Change) Any() bool {
	return c.Links || c.Addresses || c.Routes || c.Neighbours || len(c.GoneLinks) > 0
}

// merge adds what is in other.
func (c *Change) merge(other Change) {
	c.Links = c.Links || other.Links
	c.Addresses = c.Addresses || other.Addresses
	c.Routes = c.Routes || other.Routes
	c.Neighbours = c.Neighbours || other.Neighbours
	for _, index := range other.GoneLinks {
		if at, present := slices.BinarySearch(c.GoneLinks, index); !present {
			c.GoneLinks = slices.Insert(c.GoneLinks, at, index)
		}
	}
}

const (
	// settle is how long a burst is collected before it is passed on.
	settle = 20 * time.Millisecond
	// receiveBuffer is how many bytes of notifications the kernel keeps while nobody receives: about 1.3 KB for each change of a neighbour. The usual
	// 208 KB do not hold what 490 nodes on one link change at once; to lose one means to read everything again.
	receiveBuffer = 8 << 20
	// resubscribe is how long to wait before a socket that broke is replaced.
	resubscribe = 200 * time.Millisecond
)

// feed is one kind of notification that the kernel sends.
type feed struct {
	what     string
	protocol int
	groups   []uint
	changeOf func(syscall.NetlinkMessage) Change
	// lost is what may have changed when messages were lost.
	lost Change
}

var networkFeed = feed{
	what:     "link, address, route and neighbour changes",
	protocol: unix.NETLINK_ROUTE,
	groups: []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEIGH},
	changeOf: changeOf,
	lost:     Change{Links: true, Addresses: true, Routes: true, Neighbours: true},
}

// Monitor reports changes of links, addresses, routes and neighbours in the network namespace of the calling thread, until ctx ends; then the channel is closed. Bursts are collected into one
// Change, and while nobody receives, changes add up in the one that is waiting. If the kernel drops messages
// or a socket breaks, Monitor subscribes again and reports that everything it tells may have changed.
func Monitor(ctx context.Context, log *slog.Logger) (<-chan Change, error) {
	// A later subscription is made by another thread, which must find the namespace again.
	here, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open own network namespace: %w", err)
	}
	socket, err := networkFeed.subscribe(here)
	if err != nil {
		return nil, errors.Join(err, here.Close())
	}
	seen, changes := make(chan Change), make(chan Change)
	var watching sync.WaitGroup
	watching.Go(func() { networkFeed.watch(ctx, log, here, socket, seen) })
	go func() {
		defer here.Close()
		defer close(seen)
		watching.Wait()
	}()
	go collect(seen, changes)
	return changes, nil
}

func (f feed) subscribe(namespace netns.NsHandle) (*nl.NetlinkSocket, error) {
	socket, err := nl.SubscribeAt(namespace, netns.None(), f.protocol, f.groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", f.what, err)
	}
	if err := socket.SetReceiveBufferSize(receiveBuffer, true); err != nil {
		socket.Close()
		return nil, fmt.Errorf("make room for %s: %w", f.what, err)
	}
	return socket, nil
}

// watch receives until ctx ends, from one socket after the other.
func (f feed) watch(ctx context.Context, log *slog.Logger, namespace netns.NsHandle, socket *nl.NetlinkSocket, seen chan<- Change) {
	for {
		err := f.receive(ctx, socket, seen)
		if ctx.Err() != nil {
			return
		}
		log.Warn("kernel notifications lost, subscribing again", "of", f.what, "error", err)
		for socket = nil; socket == nil; {
			if socket, err = f.subscribe(namespace); err == nil {
				break
			}
			log.Warn("subscribing failed, trying again", "error", err, "after", resubscribe)
			select {
			case <-ctx.Done():
				return
			case <-time.After(resubscribe):
			}
		}
		seen <- f.lost
	}
}

// receive passes on what the socket says until it breaks or ctx ends, and closes it.
func (f feed) receive(ctx context.Context, socket *nl.NetlinkSocket, seen chan<- Change) error {
	stop := context.AfterFunc(ctx, socket.Close)
	defer func() {
		if stop() {
			socket.Close()
		}
	}()
	for {
		messages, from, err := socket.Receive()
		if err != nil {
			if errors.Is(err, os.ErrClosed) && ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		var change Change
		for _, message := range messages {
			change.merge(f.changeOf(message))
		}
		if change.Any() {
			seen <- change
		}
	}
}

// changeOf reads one message of networkFeed.
func changeOf(message syscall.NetlinkMessage) Change {
	switch message.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		// struct ifinfomsg: family, padding, type, index. A bridge reports its ports with its own family:
		// a port that leaves a bridge is not a device that is gone.
		if len(message.Data) < unix.SizeofIfInfomsg || message.Data[0] != unix.AF_UNSPEC {
			return Change{Links: true}
		}
		if message.Header.Type == unix.RTM_DELLINK {
			return Change{Links: true, GoneLinks: []int{int(binary.NativeEndian.Uint32(message.Data[4:]))}}
		}
		return Change{Links: true}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return Change{Addresses: true}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return Change{Routes: true}
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		// The forwarding tables of bridges and VXLAN devices come through the same group.
		if len(message.Data) > 0 && message.Data[0] != unix.AF_INET && message.Data[0] != unix.AF_INET6 {
			return Change{}
		}
		return Change{Neighbours: true}
	}
	return Change{}
}

// collect adds up changes for settle and then offers the sum, adding to it while nobody takes it. It closes
// changes when seen is closed.
func collect(seen <-chan Change, changes chan<- Change) {
	defer close(changes)
	var sum Change
	var ready chan<- Change      // changes while the sum is old enough to go
	var settled <-chan time.Time // runs while the sum is still growing
	for {
		select {
		case change, ok := <-seen:
			if !ok {
				return
			}
			if !sum.Any() {
				settled = time.After(settle)
			}
			sum.merge(change)
		case <-settled:
			settled, ready = nil, changes
		case ready <- sum:
			sum, ready = Change{}, nil
		}
	}
}
