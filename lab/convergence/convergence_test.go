package convergence

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

var here = testbed.Netns{}

func listen(t *testing.T, at string, who byte) netip.AddrPort {
	t.Helper()
	l, err := Listen(t.Context(), here, netip.MustParseAddrPort(at), who)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

func TestAnswer(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		to := listen(t, at, 7)
		var out bytes.Buffer
		begin := time.Now()
		in := fmt.Sprintln(to, 7, int64(10*time.Second)) + fmt.Sprintln(to, AnyBackend, int64(10*time.Second)) + fmt.Sprintln(to, 8, int64(20*time.Millisecond))
		if err := Answer(strings.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || lines[2] != "error "+errNone.Error() {
			t.Fatalf("%q", lines)
		}
		for _, line := range lines[:2] {
			var nanoseconds int64
			if _, err := fmt.Sscanf(line, "at %d", &nanoseconds); err != nil {
				t.Fatal(err)
			}
			if moment := time.Unix(0, nanoseconds); moment.Before(begin) || moment.After(time.Now()) {
				t.Errorf("%v is not within the test", moment)
			}
		}
	}
}

// The backend stops while the client connects: the moment lies between the last reply and the stop.
func TestUntilNoReply(t *testing.T) {
	l, err := Listen(t.Context(), here, netip.MustParseAddrPort("127.0.0.4:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort(l.Addr().String())
	if _, err := untilNone(to, NoBackend, 300*time.Millisecond); !errors.Is(err, errStill) {
		t.Errorf("a backend replies: %v", err)
	}
	closed := make(chan time.Time, 1)
	go func() {
		time.Sleep(time.Second)
		closed <- time.Now()
		l.Close()
	}()
	at, err := untilNone(to, NoBackend, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if since := at.Sub(<-closed); since < -500*time.Millisecond { // on a busy machine the backend may pause
		t.Errorf("the first connection without a reply began %v before the backend stopped", -since)
	}
}

func TestAnswerRejectsNonsense(t *testing.T) {
	for _, in := range []string{"nonsense\n", "address 0 1\n"} {
		if err := Answer(strings.NewReader(in), &bytes.Buffer{}); err == nil {
			t.Errorf("%q is accepted as a request", in)
		}
	}
}

// The backend starts while the client connects.
func TestUntilSomebodyListens(t *testing.T) {
	free := listen(t, "127.0.0.2:0", 0) // the port is free on another address
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), free.Port())
	reached := make(chan error, 1)
	go func() {
		_, err := until(to, 3, 10*time.Second)
		reached <- err
	}()
	select {
	case err := <-reached:
		t.Fatalf("reached without a listener: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	listen(t, to.String(), 3)
	if err := <-reached; err != nil {
		t.Error(err)
	}
}

// An error of the client's own attempts is reported, and is no missing reply of the server.
func TestAttemptsThatCannotBegin(t *testing.T) {
	nowhere := netip.MustParseAddrPort("255.255.255.255:9") // TCP has no broadcast: the kernel refuses to connect
	for name, wait := range map[string]func(netip.AddrPort, int, time.Duration) (time.Time, error){"any": until, "none": untilNone} {
		_, err := wait(nowhere, AnyBackend, 20*time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), "could not begin") {
			t.Errorf("waiting for %s: %v", name, err)
		}
	}
}
