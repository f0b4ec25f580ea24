package samenode_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// Two pods that opted in exchange data from socket to socket, in both directions and both families.
func TestSocketsMeet(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			before := l.counts(t)
			c, s := connect(t, l.A1, l.A2, family)
			for i := range 10 {
				says(t, c, s, fmt.Sprintf("question %d", i))
				says(t, s, c, fmt.Sprintf("answer %d", i))
			}
			after := l.counts(t)
			if n := after.Messages - before.Messages; n != 20 {
				t.Errorf("%d messages went from socket to socket, want 20: %+v", n, after)
			}
			if all := l.sockets(t); len(all) != 2 || !all[0].Meets || !all[1].Meets || all[0].Local != all[1].Remote {
				t.Errorf("sockets %+v", all)
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("after the client's last data: %d bytes, %v", n, err)
			}
			says(t, s, c, "half closed")
			s.Close()
			c.Close()
			l.awaitSockets(t, 0)
		})
	}
	l.DropsNothing(t)
}

// awaitSockets waits until so many sockets are left.
func (l *lab) awaitSockets(t testing.TB, want int) {
	t.Helper()
	for deadline := time.Now().Add(netlab.Patience); ; time.Sleep(time.Millisecond) {
		all := l.sockets(t)
		if len(all) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("sockets %+v, want %d", all, want)
		}
	}
}
