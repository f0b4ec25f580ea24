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

// The kernel's error for an attempt says whether its packets were lost, rejected or not sent. Some networks drop denied
// packets, and others reject them.
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

// outcome returns nil if the error means that packets were sent and denied. Otherwise it returns the error: the outcome
// is unknown. Only a control distinguishes a denied packet from one that a broken path loses.
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

// routed returns an error if the current namespace has no route to the target. connect on a UDP socket looks up a route
// and sends nothing.
func (q connection) routed() error {
	conn, err := net.Dial("udp", q.to.String())
	if err == nil {
		conn.Close()
	}
	return err
}
