package conntrack

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/loop"
)

// A pod gets an address only after all entries of its former pod are removed. Failures are retried.
func TestReusedAddressInheritsNothing(t *testing.T) {
	var forgotten [][]netip.Addr
	fails := errors.New("no memory")
	x := New(Kernel{}, &loop.Beat{}, slog.New(slog.DiscardHandler))
	x.left.looked = prefixes("10.1.1.0/24")
	x.kernel.ForgetPods = func(gone []netip.Addr) (int, error) {
		forgotten = append(forgotten, gone)
		return len(gone), fails
	}
	one, two := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	x.PodGone([]netip.Addr{two, one})
	if len(x.wake) != 1 {
		t.Error("a deleted pod is not reported")
	}
	if err := x.Clear([]netip.Addr{netip.MustParseAddr("10.1.1.4")}); err != nil || len(forgotten) != 0 {
		t.Errorf("an address without a former pod costs something: %v, %v", forgotten, err)
	}
	if err := x.Clear([]netip.Addr{one}); !errors.Is(err, fails) {
		t.Errorf("a pod gets an address whose connections could not be removed: %v", err)
	}
	fails = nil
	x.forgetPods()
	if len(forgotten) != 2 || !slices.Equal(forgotten[1], []netip.Addr{one, two}) {
		t.Errorf("removed are %v", forgotten)
	}
	if err := x.Clear([]netip.Addr{one, two}); err != nil || len(forgotten) != 2 {
		t.Errorf("addresses are removed twice: %v, %v", forgotten, err)
	}
	if n := x.expired.Load(); n != 4 {
		t.Errorf("%d entries are counted", n)
	}
}

// Entries that an earlier agent left of deleted pods are searched once, before any pod gets an address; existing pods
// keep theirs.
func TestLeftPodsAreFound(t *testing.T) {
	here, gone, foreign := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3"), netip.MustParseAddr("10.1.1.4")
	ranges, searched := prefixes("10.1.1.0/24"), 0
	fails := errors.New("no memory")
	x := New(Kernel{}, &loop.Beat{}, slog.New(slog.DiscardHandler))
	x.kernel.Remembered = func(got []netip.Prefix) ([]netip.Addr, error) {
		if searched++; !slices.Equal(got, ranges) {
			t.Errorf("searched %v", got)
		}
		return []netip.Addr{here, gone, foreign}, fails
	}
	if err := x.FindLeft(nil, nil, nil); err != nil || searched != 0 {
		t.Errorf("searched %d times without ranges: %v", searched, err)
	}
	if err := x.FindLeft(ranges, []netip.Addr{foreign}, []netip.Addr{here}); !errors.Is(err, fails) {
		t.Errorf("pods may be added before the search: %v", err)
	}
	fails = nil
	for range 2 {
		if err := x.FindLeft(ranges, []netip.Addr{foreign}, []netip.Addr{here}); err != nil {
			t.Fatal(err)
		}
	}
	if searched != 2 || x.HasLeft([]netip.Addr{here, foreign}) || !x.HasLeft([]netip.Addr{gone}) {
		t.Errorf("searched %d times, to be removed are %v", searched, x.left.addresses)
	}
	ranges = prefixes("10.1.1.0/24", "10.1.9.0/24")
	if err := x.FindLeft(ranges, []netip.Addr{foreign}, []netip.Addr{here}); err != nil || searched != 3 {
		t.Errorf("searched %d times after the node got another range: %v", searched, err)
	}
}

// Until the search succeeds, a new pod's addresses are cleared one by one, and ADD fails where that fails. The search
// is repeated, and from then on an address without a former pod costs nothing.
func TestAddressesBeforeLeftPodsAreFound(t *testing.T) {
	var forgotten [][]netip.Addr
	unread, fails := errors.New("no memory"), errors.New("no memory either")
	x := New(Kernel{}, &loop.Beat{}, slog.New(slog.DiscardHandler))
	x.kernel.Remembered = func([]netip.Prefix) ([]netip.Addr, error) { return nil, unread }
	x.kernel.ForgetPods = func(gone []netip.Addr) (int, error) {
		forgotten = append(forgotten, gone)
		return 0, fails
	}
	one, two := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	find := func() error { return x.FindLeft(prefixes("10.1.1.0/24"), nil, nil) }
	if err := find(); !errors.Is(err, unread) {
		t.Errorf("the search succeeded: %v", err)
	}
	if err := x.Clear([]netip.Addr{one}); !errors.Is(err, fails) {
		t.Errorf("a pod gets an address that may have entries: %v", err)
	}
	fails = nil
	if err := x.Clear([]netip.Addr{two}); err != nil || len(forgotten) != 2 || !slices.Equal(forgotten[1], []netip.Addr{one, two}) {
		t.Errorf("a pod does not get an address without entries: %v; removed are %v", err, forgotten)
	}
	unread = nil
	if err := find(); err != nil {
		t.Errorf("the search is not repeated: %v", err)
	}
	if err := x.Clear([]netip.Addr{one}); err != nil || len(forgotten) != 2 {
		t.Errorf("an address without a former pod costs something: %v, %v", err, forgotten)
	}
}

func prefixes(all ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}
