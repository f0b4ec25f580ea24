package connectivity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// The kernel's error for an attempt says either what became of its packets, or that it sent none. Some networks drop
// what a policy denies, and then the kernel reports nothing; others reject it.
var (
	// lost are errors of attempts without a reply in time, and of connections that end before their byte.
	lost = []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, unix.ETIMEDOUT, io.EOF}
	// rejected are errors of packets that were sent and rejected. Neither a missing route nor a lack of anything at the
	// client gives them.
	rejected = []error{
		unix.ECONNREFUSED, // RST; ICMP: port unreachable
		unix.ECONNRESET,   // RST
		unix.ENOPROTOOPT,  // ICMP: protocol unreachable
		unix.EPERM,        // a packet filter at the place's own output, or a program at its cgroup
	}
	// unreachable are errors from an ICMP error, and from a missing route too.
	unreachable = []error{
		unix.EHOSTUNREACH, // ICMP: host unreachable, host prohibited, communication prohibited; a route "unreachable"
		unix.ENETUNREACH,  // ICMP: net unreachable, net prohibited; no route
		unix.EACCES,       // ICMPv6: prohibited; a route "prohibit"
	}
)

// outcome returns nil for the error of an attempt that was made and got no reply, and the error of one that could not
// be made: whether the network admits it is then not known. Some networks are silent in both cases, like a path to
// nowhere; only a control tells these apart.
func (q connection) outcome(err error) error {
	is := func(other error) bool { return errors.Is(err, other) }
	switch {
	case slices.ContainsFunc(lost, is), slices.ContainsFunc(rejected, is):
		return nil
	case slices.ContainsFunc(unreachable, is):
		if routed := q.routed(); routed != nil {
			return fmt.Errorf("%w, and no packet leaves: %w", err, routed)
		}
		return nil
	}
	return err
}

// routed says why the current namespace has no route to the target. A UDP socket that connects looks up a route and
// sends nothing.
func (q connection) routed() error {
	conn, err := net.Dial("udp", q.to.String())
	if err == nil {
		conn.Close()
	}
	return err
}
