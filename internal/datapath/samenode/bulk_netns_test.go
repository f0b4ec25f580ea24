package samenode_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
)

// A large message and what follows it go as packets, after what went from socket to socket: the receiver has read
// nothing yet, and gets everything in order.
func TestBulkLeavesInOrder(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	for _, family := range fixtures.Families {
		c, s := connect(t, l.A1, l.A2, family)
		before := l.counts(t)
		var sent []byte
		for _, size := range []int{10, 4096, 1000, 40000, 20, 3000} {
			b := netlab.RandomBytes(size)
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, b...)
		}
		after := l.counts(t)
		if n := after.Messages - before.Messages; n != 3 {
			t.Errorf("%d messages went from socket to socket, want the three before the large one", n)
		}
		if n := after.Left[bulk] - before.Left[bulk]; n != 1 {
			t.Errorf("%d sockets went back to packets, want 1", n)
		}
		if got, err := read(s, len(sent)); err != nil || got != string(sent) {
			t.Errorf("%d bytes of %d arrived, or in another order: %v", len(got), len(sent), err)
		}
		says(t, s, c, "the other direction still meets")
		says(t, c, s, "small again")
	}
	l.DropsNothing(t)
}

// bulk is the reason of sockets with much data.
const bulk = samenode.Reason("bulk")

// Whatever sizes, pauses and sweeps: the stream is the same. The receiver reads slowly, so that data is unread at
// every change.
func TestRandomStreams(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if _, err := l.Sweep(); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for i := range 24 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c, s := connect(t, l.A1, l.A2, fixtures.Families[i%2])
			sent := netlab.RandomBytes(1 << 20)
			go func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for rest := sent; len(rest) > 0; {
					n := min(1+r.IntN([]int{100, 5000, 40000}[r.IntN(3)]), len(rest))
					if _, err := c.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
					if r.IntN(20) == 0 {
						time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
					}
				}
				c.Close()
			}()
			var got bytes.Buffer
			r := rand.New(rand.NewPCG(uint64(i), 2))
			if err := s.SetReadDeadline(time.Now().Add(6 * netlab.Patience)); err != nil {
				t.Fatal(err)
			}
			for {
				n, err := io.CopyN(&got, onlyRead{s}, int64(1+r.IntN(20000)))
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("after %d bytes: %v", got.Len()+int(n), err)
				}
				if r.IntN(10) == 0 {
					time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
				}
			}
			if !bytes.Equal(got.Bytes(), sent) {
				at := 0
				for at < min(got.Len(), len(sent)) && got.Bytes()[at] == sent[at] {
					at++
				}
				t.Errorf("%d bytes arrived of %d, the first wrong one is number %d", got.Len(), len(sent), at)
			}
		})
	}
	close(stop)
	<-done
	c := l.counts(t)
	t.Logf("%+v", c)
	if c.Messages == 0 || c.Left[bulk] == 0 {
		t.Error("no socket met, or none went back to packets")
	}
}

// A receiver that reads nothing stops the sender: the kernel does not, so the datapath goes back to packets.
func TestUnreadIsBounded(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	c, s := connect(t, l.A1, l.A2, 4)
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for {
		n, err := c.Write(make([]byte, 1000))
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if sent > 64<<20 {
			t.Fatal("nothing stops the sender")
		}
	}
	counts := l.counts(t)
	if counts.Left[bulk] != 1 || counts.Bytes > 64<<10+32<<10 {
		t.Errorf("%d bytes went from socket to socket before the sender used packets: %+v", counts.Bytes, counts)
	}
	c.Close()
	if n, err := io.Copy(io.Discard, onlyRead{s}); err != nil || n != int64(sent) {
		t.Errorf("%d bytes arrived of %d: %v", n, sent, err)
	}
}

// Sockets that went back to packets become ordinary ones, without loss: first the one that gets packets only.
func TestSweep(t *testing.T) {
	l := newLab(t, fixtures.EbpfRouting)
	l.join(t, l.A1, l.A2)
	c, s := connect(t, l.A1, l.A2, 4)
	says(t, c, s, "meets")
	if _, err := c.Write(make([]byte, 40000)); err != nil {
		t.Fatal(err)
	}
	l.sweeps(t, 0) // seen once
	l.sweeps(t, 1) // s gets packets only
	if _, err := read(s, 40000); err != nil {
		t.Fatal(err)
	}
	says(t, s, c, "not any more: the client is alone in the map")
	if n := l.sockets(t); len(n) != 2 || n[0].Swept == n[1].Swept {
		t.Errorf("sockets %+v", n)
	}
	says(t, c, s, "packets")
	l.sweeps(t, 0)
	l.sweeps(t, 0)
	c.Close()
	s.Close()
	l.awaitSockets(t, 0)

	// Unread data keeps a socket where it is.
	c, s = connect(t, l.A1, l.A2, 4)
	says(t, s, c, "meets")
	for _, n := range []int{100, 40000} {
		if _, err := c.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		l.sweeps(t, 0)
	}
	if _, err := read(s, 40100); err != nil {
		t.Fatal(err)
	}
	l.sweeps(t, 0)
	l.sweeps(t, 1)
}

// sweeps sweeps, and expects so many sockets to be removed.
func (l *lab) sweeps(t *testing.T, want int) {
	t.Helper()
	swept, err := l.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	if swept.Removed != want {
		t.Errorf("%d sockets were removed, want %d: %+v", swept.Removed, want, l.sockets(t))
	}
}
