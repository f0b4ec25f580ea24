// Package monitor reports changes of the node's network that the kernel notifies of.
package monitor

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

	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// Change says what has changed since the previous Change: links, addresses, routes, routing rules or neighbours. It is a set, not a
// history: the receiver reads the tables that it needs.
type Change struct {
	// Pods reports changes of host ends of pods, mostly made by the agent itself. Node reports all others, and lost messages.
	Pods, Node bool
	// GoneHostEnds are the indexes of deleted host ends. Those whose messages are lost are missing here; Node is set then.
	GoneHostEnds []int
}

// any reports whether anything has changed.
func (c *Change) any() bool { return c.Pods || c.Node }

// merge adds other.
func (c *Change) merge(other Change) {
	c.Pods, c.Node = c.Pods || other.Pods, c.Node || other.Node
	c.GoneHostEnds = append(c.GoneHostEnds, other.GoneHostEnds...)
}

const (
	// coalesce is how long a burst is collected before it is sent on.
	coalesce = 20 * time.Millisecond
	// receiveBuffer is how many bytes of notifications the kernel queues, about 1.3 KB for each change of a neighbour. The default of
	// 208 KB is too small for 490 nodes on one link that change at once, and a lost message means reading every table again.
	receiveBuffer = 8 << 20
	// resubscribe is the delay before a failed subscription is repeated.
	resubscribe = 200 * time.Millisecond
)

// groups are the multicast groups to receive.
var groups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEIGH,
}

// monitor receives notifications.
type monitor struct {
	log       *slog.Logger
	namespace netns.NsHandle
	seen      chan<- Change
	// hostEnds are the indexes of the host ends of pods, from messages. neighbours is the last state of those on other devices.
	hostEnds   map[int]bool
	neighbours map[neighKey]neighState
}

// Watch reports changes of links, addresses, routes, rules and neighbours in the network namespace of the calling thread until ctx
// ends; then it closes the channel. A burst becomes one Change, and changes are merged into the one that waits for the receiver. If
// the kernel drops messages or the socket fails, Watch subscribes again and reports a change of the node.
func Watch(ctx context.Context, log *slog.Logger) (<-chan Change, error) {
	// Another thread makes later subscriptions and needs the namespace.
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
		m := monitor{log, here, seen, map[int]bool{}, map[neighKey]neighState{}}
		m.watch(ctx, socket)
	}()
	go collect(seen, changes)
	return changes, nil
}

func subscribe(namespace netns.NsHandle) (*nl.NetlinkSocket, error) {
	socket, err := nl.SubscribeAt(namespace, netns.None(), unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to rtnetlink notifications: %w", err)
	}
	if err := socket.SetReceiveBufferSize(receiveBuffer, true); err != nil {
		socket.Close()
		return nil, fmt.Errorf("set the receive buffer for rtnetlink notifications: %w", err)
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

// receive sends on the socket's messages until it fails or ctx ends, and closes it.
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

// changeOf reads a message. struct ifinfomsg, ifaddrmsg and ndmsg have the family at byte 0 and the index of the device at byte 4.
func (m *monitor) changeOf(message syscall.NetlinkMessage) Change {
	const afterIndex = 8
	index, family := 0, byte(unix.AF_UNSPEC)
	if len(message.Data) > 0 {
		family = message.Data[0]
	}
	switch message.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		if len(message.Data) >= afterIndex {
			index = int(binary.NativeEndian.Uint32(message.Data[4:afterIndex]))
		}
	}
	switch message.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return m.linkChange(message, index, family)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		// The group includes the forwarding tables of bridges and VXLAN devices.
		if family != unix.AF_UNSPEC && family != unix.AF_INET && family != unix.AF_INET6 {
			return Change{}
		}
		if m.repeats(message) && !m.hostEnds[index] {
			return Change{}
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if device, err := route.DeviceOf(message.Data, family); err == nil {
			index = device
		}
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		if route.IsOfPod(message.Data) { // by ADD and DEL, which do what follows from it
			return Change{}
		}
	default:
		return Change{}
	}
	return m.changeAt(index)
}

// linkChange records whether a device is the host end of a pod. A bridge reports its ports with its own family.
func (m *monitor) linkChange(message syscall.NetlinkMessage, index int, family byte) Change {
	if family != unix.AF_UNSPEC || len(message.Data) < unix.SizeofIfInfomsg {
		return Change{Node: true}
	}
	change := m.changeAt(index)
	if message.Header.Type == unix.RTM_DELLINK { // has no IFLA_INFO_KIND
		if m.hostEnds[index] {
			change.GoneHostEnds = []int{index}
		}
		delete(m.hostEnds, index)
		return change
	}
	link, err := netlink.LinkDeserialize(&unix.NlMsghdr{Type: message.Header.Type}, message.Data)
	if err == nil && device.Pods.IsHostEnd(link.Type(), link.Attrs().Name) {
		m.hostEnds[index] = true
	} else {
		delete(m.hostEnds, index)
	}
	return m.changeAt(index)
}

func (m *monitor) changeAt(index int) Change {
	return Change{Pods: m.hostEnds[index], Node: !m.hostEnds[index]}
}

// collect merges changes for the duration of coalesce, then offers the result and keeps merging until it is received. It closes changes
// when seen is closed.
func collect(seen <-chan Change, changes chan<- Change) {
	defer close(changes)
	var sum Change
	var ready chan<- Change  // changes, once the sum is old enough
	var due <-chan time.Time // set until then
	for {
		select {
		case change, ok := <-seen:
			if !ok {
				return
			}
			if !sum.any() {
				due = time.After(coalesce)
			}
			sum.merge(change)
		case <-due:
			due, ready = nil, changes
		case ready <- sum:
			sum, ready = Change{}, nil
		}
	}
}
