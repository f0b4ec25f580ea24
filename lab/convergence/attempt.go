package convergence

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// between is the time between attempts, and so the resolution of the result.
	between = time.Millisecond
	// patience is the timeout of an attempt: longer than a handshake on one machine, shorter than the SYN retransmission
	// timer, because a reply to a second SYN would count for the first one's time.
	patience = 500 * time.Millisecond
	// most is the maximum number of open attempts.
	most = int(patience / between)
)

// errNone means that no connection succeeded in time, errStill that connections succeeded to the end.
var (
	errNone  = errors.New("no connection reached it in time")
	errStill = errors.New("connections reached it to the end")
)

// attempt is a connection that is being made.
type attempt struct {
	fd    int
	began time.Time
}

// attempts are the open attempts to one address. One begins every millisecond.
type attempts struct {
	to   netip.AddrPort
	open []attempt // the oldest first
	next time.Time
	// unbegun is the latest error of an attempt that could not begin.
	unbegun error
}

// because adds the error of attempts that could not begin: they show nothing about the backend.
func (a *attempts) because(found error) error {
	if a.unbegun == nil {
		return found
	}
	return fmt.Errorf("%w; attempts could not begin: %w", found, a.unbegun)
}

// close ends all of them.
func (a *attempts) close() { a.abandon(len(a.open)) }

// abandon ends the oldest ones.
func (a *attempts) abandon(n int) {
	for _, one := range a.open[:n] {
		abandon(one.fd)
	}
	a.open = a.open[n:]
}

// step begins an attempt if one is due, and waits until an attempt has data or the next is due.
func (a *attempts) step() error {
	if now := time.Now(); !now.Before(a.next) {
		fd, err := begin(a.to)
		if err == nil {
			a.open = append(a.open, attempt{fd, now})
		} else {
			a.unbegun = err
		}
		a.next = now.Add(between)
	}
	return poll(a.open, time.Until(a.next))
}

// until makes a new connection every millisecond until one reaches the wanted backend. It returns the moment at which
// its first byte arrived.
func until(to netip.AddrPort, want int, limit time.Duration) (time.Time, error) {
	all := attempts{to: to}
	defer all.close()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		for len(all.open) > 0 && (time.Since(all.open[0].began) > patience || len(all.open) > most) {
			all.abandon(1)
		}
		if err := all.step(); err != nil {
			return time.Time{}, err
		}
		kept := all.open[:0]
		var at time.Time
		for _, a := range all.open {
			who, done := answer(a.fd)
			switch {
			case !done:
				kept = append(kept, a)
				continue
			case at.IsZero() && who >= 0 && (want == AnyBackend || who == want):
				at = time.Now()
			case who >= 0: // another backend: the next attempt may reach the wanted one
				all.next = time.Now()
			}
			abandon(a.fd)
		}
		if all.open = kept; !at.IsZero() {
			return at, nil
		}
	}
	return time.Time{}, all.because(errNone)
}

// quiet is the time without a reply after which connections count as denied. A busy machine may stop the client too.
const quiet = 100 * time.Millisecond

// untilNone makes a new connection every millisecond until none gets a reply any more. It returns the moment at which
// the first one without a reply began.
func untilNone(to netip.AddrPort, _ int, limit time.Duration) (time.Time, error) {
	all := attempts{to: to}
	defer all.close()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if len(all.open) > int(quiet/between)/2 && time.Since(all.open[0].began) > quiet {
			return all.open[0].began, nil
		}
		if err := all.step(); err != nil {
			return time.Time{}, err
		}
		for i := len(all.open) - 1; i >= 0; i-- {
			if who, done := answer(all.open[i].fd); done && who >= 0 {
				// Earlier ones were allowed too, or were lost for another reason.
				all.abandon(i + 1)
				break
			}
		}
	}
	return time.Time{}, all.because(errStill)
}

// begin sends the SYN of a connection, or returns the kernel's error.
func begin(to netip.AddrPort) (int, error) {
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, address); err != nil && err != unix.EINPROGRESS {
		abandon(fd)
		return 0, err
	}
	return fd, nil
}

// poll returns when one of the connections has data.
func poll(open []attempt, limit time.Duration) error {
	fds := make([]unix.PollFd, len(open))
	for i, a := range open {
		fds[i] = unix.PollFd{Fd: int32(a.fd), Events: unix.POLLIN}
	}
	timeout := unix.NsecToTimespec(max(0, limit).Nanoseconds())
	if _, err := unix.Ppoll(fds, &timeout, nil); err != nil && err != unix.EINTR {
		return err
	}
	return nil
}

// answer reads the byte that identifies a backend. It returns -1 for a failed connection.
func answer(fd int) (who int, done bool) {
	var b [1]byte
	n, err := unix.Read(fd, b[:])
	switch {
	case err == unix.EAGAIN || err == unix.ENOTCONN || err == unix.EINPROGRESS:
		return 0, false
	case err != nil || n == 0:
		return -1, true
	}
	return int(b[0]), true
}

// abandon ends a connection with RST, so that its ports do not stay in TIME_WAIT.
func abandon(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(fd)
}
