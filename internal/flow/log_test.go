package flow

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// numbered are records that differ in their port, from first on.
func numbered(first, count int) (all []Record) {
	for i := range count {
		r := Record{}
		r.Time = noon.Add(time.Duration(first+i) * time.Second)
		r.Device = nil
		r.Event.Device = first + i
		r.Kind = KindDropped
		if (first+i)%2 == 0 {
			r.Kind = KindNew
		}
		all = append(all, r)
	}
	return all
}

func numbers(records []Record) (all []int) {
	for _, r := range records {
		all = append(all, r.Event.Device)
	}
	return all
}

func want(t *testing.T, what string, got []Record, numbersWanted ...int) {
	t.Helper()
	if n := numbers(got); !slices.Equal(n, numbersWanted) {
		t.Errorf("%s: %v, expected %v", what, n, numbersWanted)
	}
}

var onlyOpened = Filter{verdict: agentapi.FlowAllowed}

func TestLog(t *testing.T) {
	l := NewLog(5)
	want(t, "an empty one", l.Last(Filter{}, 0))
	if n, oldest := l.Buffered(); n != 0 || !oldest.IsZero() {
		t.Errorf("an empty one keeps %d since %v", n, oldest)
	}
	l.Add(numbered(0, 3)...)
	want(t, "before it is full", l.Last(Filter{}, 0), 0, 1, 2)
	l.Add(numbered(3, 4)...)
	want(t, "the last ones", l.Last(Filter{}, 0), 2, 3, 4, 5, 6)
	want(t, "two of them", l.Last(Filter{}, 2), 5, 6)
	want(t, "two of those that fit", l.Last(onlyOpened, 2), 4, 6)
	want(t, "more than there are", l.Last(onlyOpened, 9), 2, 4, 6)
	if n, oldest := l.Buffered(); n != 5 || !oldest.Equal(noon.Add(2*time.Second)) {
		t.Errorf("it keeps %d since %v", n, oldest)
	}
	l.Add(numbered(7, 12)...)
	want(t, "more at once than it keeps", l.Last(Filter{}, 0), 14, 15, 16, 17, 18)
}

func TestFollow(t *testing.T) {
	ctx := context.Background()
	l := NewLog(2000)
	l.Add(numbered(0, 4)...)
	past, f := l.Follow(onlyOpened, 1)
	defer f.Close()
	want(t, "the past", past, 2)
	none, g := l.Follow(Filter{}, None)
	defer g.Close()
	want(t, "none of the past", none)
	kept, h := l.Follow(Filter{}, 0)
	defer h.Close()
	want(t, "all of the past", kept, 0, 1, 2, 3)

	l.Add(numbered(4, 3)...)
	got, missed, err := f.Next(ctx)
	if err != nil || missed != 0 {
		t.Errorf("missed %d: %v", missed, err)
	}
	want(t, "what came", got, 4, 6)

	// Records that do not match do not wake a follower; matching ones do.
	l.Add(numbered(7, 1)...)
	go l.Add(numbered(8, 1)...)
	got, _, err = f.Next(ctx)
	if err != nil {
		t.Error(err)
	}
	want(t, "what came", got, 8)

	// Far behind, and in parts.
	l.Add(numbered(9, 3*batch)...)
	var all []Record
	for len(all) < 3*batch+5 {
		got, missed, err := g.Next(ctx)
		if err != nil || missed != 0 {
			t.Fatalf("missed %d: %v", missed, err)
		}
		all = append(all, got...)
	}
	if n := numbers(all); n[0] != 4 || n[len(n)-1] != 9+3*batch-1 || !slices.IsSorted(n) {
		t.Errorf("%d records from %d to %d", len(n), n[0], n[len(n)-1])
	}
}

// Nothing waits for a slow follower, which learns how many records it missed.
func TestFollowTooSlow(t *testing.T) {
	l := NewLog(3)
	_, f := l.Follow(Filter{}, None)
	defer f.Close()
	l.Add(numbered(0, 10)...)
	got, missed, err := f.Next(context.Background())
	if err != nil || missed != 7 {
		t.Errorf("missed %d: %v", missed, err)
	}
	want(t, "the rest", got, 7, 8, 9)
}

func TestFollowEnds(t *testing.T) {
	l := NewLog(3)
	_, f := l.Follow(Filter{}, None)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := f.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
	l.Add(numbered(0, 1)...)
	l.Close()
	got, _, err := f.Next(context.Background())
	want(t, "what came before the end", got, 0)
	if err != nil {
		t.Error(err)
	}
	if _, _, err := f.Next(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	_, late := l.Follow(Filter{}, None)
	if _, _, err := late.Next(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("started after the end: %v", err)
	}
	f.Close()
	late.Close()
	if len(l.followers) != 0 {
		t.Errorf("%d followers remain", len(l.followers))
	}
}

// Reading must keep up with the datapath's events, which come as fast as connections do.
func BenchmarkRecord(b *testing.B) {
	n := NewNames("a")
	n.Deliver(someObjects())
	l := NewLog(16384)
	e := Event{Time: noon, Kind: KindNew, Protocol: 6, Source: end("10.1.1.2:40000"), Destination: end("10.1.2.2:15432"), Ingress: 1}
	records := make([]Record, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		if records = append(records, n.Record(e)); len(records) == cap(records) {
			l.Add(records...)
			records = records[:0]
		}
	}
}
