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

// What the kernel says of an attempt is either what became of its packets, or that there were none. Networks drop what a policy forbids, and
// then the kernel says nothing; others reject it.
var (
	// lost are errors of attempts that nobody answered in time, and of connections that end before their byte.
	lost = []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, unix.ETIMEDOUT, io.EOF}
	// rejected are those of packets that were sent and refused. No route and no lack of anything at the asking place gives them.
	rejected = []error{
		unix.ECONNREFUSED, // RST; ICMP: port unreachable
		unix.ECONNRESET,   // RST
		unix.ENOPROTOOPT,  // ICMP: protocol unreachable
		unix.EPERM,        // a packet filter at the place's own output, or a program at its cgroup
	}
	// unreachable are those that an ICMP error of who refuses gives, and a route that is not there, too.
	unreachable = []error{
		unix.EHOSTUNREACH, // ICMP: host unreachable, host prohibited, communication prohibited; a route "unreachable"
		unix.ENETUNREACH,  // ICMP: net unreachable, net prohibited; no route
		unix.EACCES,       // ICMPv6: prohibited; a route "prohibit"
	}
)

// judge gives nil for an error of an attempt that was made and not answered, and the error for one that could not be made: whether the
// network lets it through is then not known. What of a network is silence in either case, as packets into nowhere are, only a control tells.
func (q inquiry) judge(err error) error {
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

// routed says why the place that this is called in has no route to where it asks. A UDP socket that connects looks for one and sends nothing.
func (q inquiry) routed() error {
	conn, err := net.Dial("udp", q.to.String())
	if err == nil {
		conn.Close()
	}
	return err
}
