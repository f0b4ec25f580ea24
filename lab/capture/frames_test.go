package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestFrames sends frames over a pair of devices: both ends see each of them once.
func TestFrames(t *testing.T) {
	testenv.Root(t)
	const marker = "a marker"
	lab, err := testbed.Up(t.Context(), testbed.Options{Name: fmt.Sprint("capture-", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Down(context.Background()) })
	var mu sync.Mutex
	seen := map[string]int{}
	for name, start := range map[string]func(testbed.Netns, string, func([]byte, bool)) (func() error, error){"queue": Frames, "ring": Copies} {
		for _, n := range lab.Nodes() {
			stop, err := start(n.Netns, testbed.Uplink, func(frame []byte, sent bool) {
				if bytes.Contains(frame, []byte(marker)) {
					mu.Lock()
					seen[fmt.Sprint(name, " ", n.Name, " ", sent, " ", len(frame))]++
					mu.Unlock()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	const most = 3000 // some blocks of a ring
	frames := 0
	to := netip.AddrPortFrom(lab.Node(1).Addresses[0].Addr(), 9)
	err = lab.Node(0).Do(func() error {
		conn, err := net.Dial("udp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		for range most {
			switch _, err := conn.Write([]byte(marker + string(make([]byte, 1000)))); {
			case err == nil:
				frames++
			case !errors.Is(err, unix.ECONNREFUSED): // of the frame before
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	length := 14 + 20 + 8 + len(marker) + 1000
	want := map[string]int{}
	for _, name := range []string{"queue", "ring"} {
		want[fmt.Sprint(name, " n1 true ", length)], want[fmt.Sprint(name, " n2 false ", length)] = frames, frames
	}
	deadline := time.Now().Add(testenv.Patience(10 * time.Second))
	for {
		mu.Lock()
		got := maps.Clone(seen)
		mu.Unlock()
		data := maps.Clone(got)
		maps.DeleteFunc(data, func(key string, _ int) bool { return want[key] == 0 }) // the errors that quote them are none
		if maps.Equal(data, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("seen %v, want %v", got, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
