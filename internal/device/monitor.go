package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Change says what has changed since the Change before: links, addresses, routes, routing rules or neighbours. It is a set, not a history: who
// gets one reads the tables that he cares for.
type Change struct {
	// Pods is for what is of host ends of pods alone: mostly the agent's own doing. Node is for everything else, and for what nobody can tell.
	Pods, Node bool
	// GoneHostEnds are the indexes of those host ends that are there no more; what is lost with messages is of the node.
	GoneHostEnds []int
}

// any tells whether anything has changed.
func (c *Change) any() bool { return c.Pods || c.Node }

// merge adds what is in other.
func (c *Change) merge(other Change) {
	c.Pods, c.Node = c.Pods || other.Pods, c.Node || other.Node
	c.GoneHostEnds = append(c.GoneHostEnds, other.GoneHostEnds...)
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

// groups are what the kernel tells of.
var groups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEIGH,
}

// monitor receives what the kernel tells.
type monitor struct {
	log       *slog.Logger
	namespace netns.NsHandle
	seen      chan<- Change
	// hostEnds are the indexes of devices that messages have said to be host ends of pods, and neighbours what they have said last of neighbours on
	// others.
	hostEnds   map[int]bool
	neighbours map[neighbourAt]neighbourSaid
}

// Monitor reports changes of links, addresses, routes and neighbours in the network namespace of the calling thread, until ctx ends; then the channel is closed. Bursts are collected into one
// Change, and while nobody receives, changes add up in the one that is waiting. If the kernel drops messages
// or a socket breaks, Monitor subscribes again and reports that the node may have changed.
func Monitor(ctx context.Context, log *slog.Logger) (<-chan Change, error) {
	// A later subscription is made by another thread, which must find the namespace again.
	here, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open own network namespace: %w", err)
	}
	socket, err := subscribe(here)
	if err != nil {
		return nil, errors.Join(err, here.Close())
	}
	seen, changes := make(chan Change), make(chan Change)
	go func() {
		defer here.Close()
		defer close(seen)
		m := monitor{log, here, seen, map[int]bool{}, map[neighbourAt]neighbourSaid{}}
		m.watch(ctx, socket)
	}()
	go collect(seen, changes)
	return changes, nil
}

func subscribe(namespace netns.NsHandle) (*nl.NetlinkSocket, error) {
	socket, err := nl.SubscribeAt(namespace, netns.None(), unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of the network: %w", err)
	}
	if err := socket.SetReceiveBufferSize(receiveBuffer, true); err != nil {
		socket.Close()
		return nil, fmt.Errorf("make room for changes of the network: %w", err)
	}
	return socket, nil
}

// watch receives until ctx ends, from one socket after the other.
func (m *monitor) watch(ctx context.Context, socket *nl.NetlinkSocket) {
	for {
		err := m.receive(ctx, socket)
		if ctx.Err() != nil {
			return
		}
		m.log.Warn("kernel notifications lost, subscribing again", "error", err)
		for socket = nil; socket == nil; {
			if socket, err = subscribe(m.namespace); err == nil {
				break
			}
			m.log.Warn("subscribing failed, trying again", "error", err, "after", resubscribe)
			select {
			case <-ctx.Done():
				return
			case <-time.After(resubscribe):
			}
		}
		clear(m.hostEnds)
		clear(m.neighbours)
		m.seen <- Change{Node: true}
	}
}

// receive passes on what the socket says until it breaks or ctx ends, and closes it.
func (m *monitor) receive(ctx context.Context, socket *nl.NetlinkSocket) error {
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
			change.merge(m.changeOf(message))
		}
		if change.any() {
			m.seen <- change
		}
	}
}

// changeOf reads a message. struct ifinfomsg, ifaddrmsg and ndmsg have the index of the device behind 4 bytes, of which the first is the family.
func (m *monitor) changeOf(message syscall.NetlinkMessage) Change {
	const behindIndex = 8
	index, family := 0, byte(unix.AF_UNSPEC)
	if len(message.Data) > 0 {
		family = message.Data[0]
	}
	switch message.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		if len(message.Data) >= behindIndex {
			index = int(binary.NativeEndian.Uint32(message.Data[4:behindIndex]))
		}
	}
	switch message.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return m.linkChange(message, index, family)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		// The forwarding tables of bridges and VXLAN devices come through the same group.
		if family != unix.AF_UNSPEC && family != unix.AF_INET && family != unix.AF_INET6 {
			return Change{}
		}
		if again := m.saysAgain(message); again && !m.hostEnds[index] {
			return Change{}
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if route, _, err := readRoute(message.Data, family); err == nil {
			index = route.Device
		}
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
	default:
		return Change{}
	}
	return m.changeAt(index)
}

// linkChange notes whether a device is the host end of a pod. A bridge reports its ports with its own family.
func (m *monitor) linkChange(message syscall.NetlinkMessage, index int, family byte) Change {
	if family != unix.AF_UNSPEC || len(message.Data) < unix.SizeofIfInfomsg {
		return Change{Node: true}
	}
	change := m.changeAt(index)
	if message.Header.Type == unix.RTM_DELLINK { // which does not say of what kind the device was
		if m.hostEnds[index] {
			change.GoneHostEnds = []int{index}
		}
		delete(m.hostEnds, index)
		return change
	}
	link, err := netlink.LinkDeserialize(&unix.NlMsghdr{Type: message.Header.Type}, message.Data)
	// By its name: while it is made, and when its other end is gone, no message says where that end is.
	if err == nil && link.Type() == "veth" && isHostName(link.Attrs().Name) {
		m.hostEnds[index] = true
	} else {
		delete(m.hostEnds, index)
	}
	return m.changeAt(index)
}

func (m *monitor) changeAt(index int) Change {
	return Change{Pods: m.hostEnds[index], Node: !m.hostEnds[index]}
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
			if !sum.any() {
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
