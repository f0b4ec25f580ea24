package ipam

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/testenv"
)

var comparable = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func pool(t testing.TB, prefixes ...string) *Pool {
	t.Helper()
	p, err := NewPool(parse(prefixes...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parse(prefixes ...string) (parsed []netip.Prefix) {
	for _, s := range prefixes {
		parsed = append(parsed, netip.MustParsePrefix(s))
	}
	return parsed
}

func owner(i int) Owner { return Owner{ID: fmt.Sprint("c", i), Namespace: "default"} }

// take allocates for owner i and formats the addresses.
func take(t testing.TB, p *Pool, i int) string {
	t.Helper()
	addrs, err := p.Allocate(owner(i))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(fmt.Sprint(addrs), "[]")
}

func TestAllocateInTurnWithoutReservedAddresses(t *testing.T) {
	tests := []struct {
		prefixes []string
		want     []string
	}{
		{[]string{"10.1.0.0/29"}, []string{"10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"}},
		{[]string{"10.1.0.4/30"}, []string{"10.1.0.5", "10.1.0.6"}},
		{[]string{"255.255.255.252/30"}, []string{"255.255.255.253", "255.255.255.254"}},
		{[]string{"fd00::/126"}, []string{"fd00::1", "fd00::2", "fd00::3"}},
		{[]string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"}, []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}},
		{[]string{"fd00::/126", "10.1.0.0/30"}, []string{"10.1.0.1 fd00::1", "10.1.0.2 fd00::2"}},
		{[]string{"10.1.0.0/30", "10.2.0.0/30"}, []string{"10.1.0.1", "10.1.0.2", "10.2.0.1", "10.2.0.2"}},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.prefixes), func(t *testing.T) {
			p := pool(t, test.prefixes...)
			for i, want := range test.want {
				if got := take(t, p, i); got != want {
					t.Errorf("allocation %d: got %s, want %s", i, got, want)
				}
			}
			before := p.Usage()
			var exhausted *ExhaustedError
			if addrs, err := p.Allocate(owner(99)); !errors.As(err, &exhausted) {
				t.Errorf("after the last: got %v %v, want ExhaustedError", addrs, err)
			}
			if diff := cmp.Diff(before, p.Usage(), comparable); diff != "" {
				t.Errorf("a failed allocation left something behind:\n%s", diff)
			}
		})
	}
}

func TestHugeRangesAreNotEnumerated(t *testing.T) {
	for _, prefix := range []string{"fd00::/64", "fd00::/48", "fd00::/8", "::/0", "fd00::/65"} {
		p := pool(t, prefix)
		take(t, p, 1)
		if free := p.Usage()[0].Free; free < math.MaxInt64-1 {
			t.Errorf("%s: %d free", prefix, free)
		}
	}
	p := pool(t, "0.0.0.0/0")
	take(t, p, 1)
	if got, want := p.Usage()[0].Free, int64(1<<32-3); got != want {
		t.Errorf("0.0.0.0/0: %d free, want %d", got, want)
	}
}

func TestReleasedAddressComesLast(t *testing.T) {
	p := pool(t, "10.1.0.0/29") // .1 to .6
	for i := 1; i <= 4; i++ {
		take(t, p, i)
	}
	p.Release("c3")
	p.Release("c1")
	want := []string{"10.1.0.5", "10.1.0.6", "10.1.0.3", "10.1.0.1"}
	for i, want := range want {
		if got := take(t, p, 10+i); got != want {
			t.Errorf("allocation %d: got %s, want %s", i, got, want)
		}
	}
	// After a full turn, a release just ahead still waits for the older one.
	p.Release("c4")
	p.Release("c2")
	if got := take(t, p, 20); got != "10.1.0.4" {
		t.Errorf("got %s, want the address released first", got)
	}
}

func TestMemoryOfReleasesIsBounded(t *testing.T) {
	p := pool(t, "fd00::/64")
	for i := range rememberedReleases + 100 {
		take(t, p, i)
		p.Release(owner(i).ID)
	}
	r := p.ranges[0]
	if r.released.Len() != rememberedReleases || len(r.elements) != rememberedReleases || len(r.used) != 0 {
		t.Errorf("%d released in order, %d slots, %d used", r.released.Len(), len(r.elements), len(r.used))
	}
}

func TestReserve(t *testing.T) {
	p := pool(t, "10.1.0.0/29")
	addr := netip.MustParseAddr("10.1.0.3")
	for range 2 {
		if err := p.Reserve(owner(1), addr); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Reserve(owner(2), addr); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "c1") {
		t.Errorf("reserve of another's address: got %v, want ErrHeld naming c1", err)
	}
	if _, err := p.Allocate(owner(1)); !errors.Is(err, ErrHeld) {
		t.Errorf("allocate for a holder: got %v, want ErrHeld", err)
	}
	if got := take(t, p, 3); got != "10.1.0.4" {
		t.Errorf("after reserve of .3: got %s, want 10.1.0.4", got)
	}
	for _, bad := range []netip.Addr{{}, netip.MustParseAddr("::ffff:10.1.0.4"), netip.MustParseAddr("fe80::1%eth0")} {
		if err := p.Reserve(owner(9), bad); err == nil {
			t.Errorf("reserve of %v succeeded", bad)
		}
	}
}

func TestSetPrefixesKeepsAllocations(t *testing.T) {
	p := pool(t, "10.1.0.0/29")
	take(t, p, 1)
	take(t, p, 2)
	if err := p.SetPrefixes(parse("10.1.0.0/31", "10.2.0.0/30")); err == nil {
		t.Fatal("a range without usable addresses was accepted")
	}
	if got := p.Usage(); len(got) != 1 || got[0].Used != 2 {
		t.Fatalf("a rejected change changed something: %v", got)
	}

	if err := p.SetPrefixes(parse("10.2.0.0/30")); err != nil {
		t.Fatal(err)
	}
	for _, held := range []string{"10.1.0.1", "10.1.0.2"} {
		if err := p.Reserve(owner(4), netip.MustParseAddr(held)); !errors.Is(err, ErrHeld) {
			t.Errorf("%s outside of all ranges: got %v, want ErrHeld", held, err)
		}
	}
	if got := take(t, p, 3); got != "10.2.0.1" {
		t.Errorf("new range: got %s", got)
	}
	p.Release("c2")

	// A wider range around the old one: held addresses must not be allocated.
	if err := p.SetPrefixes(parse("10.0.0.0/8")); err != nil {
		t.Fatal(err)
	}
	if used := p.Usage()[0].Used; used != 2 {
		t.Errorf("%d used, want 2", used)
	}
	if err := p.Reserve(owner(4), netip.MustParseAddr("10.1.0.1")); !errors.Is(err, ErrHeld) {
		t.Errorf("got %v, want ErrHeld", err)
	}
}

func TestSetPrefixesRejects(t *testing.T) {
	tests := map[string]string{
		"10.1.0.1/24":             "10.1.0.0/24",
		"10.1.0.0/32":             "too small",
		"10.1.0.0/31":             "too small",
		"fd00::/128":              "too small",
		"::ffff:10.1.0.0/120":     "IPv4 written as IPv6",
		"10.1.0.0/16,10.1.2.0/24": "overlaps 10.1.0.0/16",
	}
	for list, says := range tests {
		if _, err := NewPool(parse(strings.Split(list, ",")...)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", list, err, says)
		}
	}
	if _, err := NewPool([]netip.Prefix{{}}); err == nil {
		t.Error("the zero prefix was accepted")
	}
	if _, err := pool(t).Allocate(owner(1)); !errors.Is(err, ErrNoRange) {
		t.Errorf("no range: got %v", err)
	}
}

func TestExhaustedErrorSaysWho(t *testing.T) {
	p := pool(t, "10.1.0.0/28", "fd00::/64")
	id := 0
	for namespace, n := range map[string]int{"default": 5, "kube-system": 3, "": 2, "a": 2, "b": 1, "c": 1} {
		for range n {
			if _, err := p.Allocate(Owner{ID: fmt.Sprint(id), Namespace: namespace}); err != nil {
				t.Fatal(err)
			}
			id++
		}
	}
	_, err := p.Allocate(owner(99))
	want := "no free address in 10.1.0.0/28: all 14 are in use, 5 by namespace default, " +
		"3 by namespace kube-system, 2 by containers without a namespace, 4 by 3 more"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestRandomHistory compares the pool with the simplest model: a map.
func TestRandomHistory(t *testing.T) {
	for _, seed := range testenv.Seeds(t, 20) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := pool(t, "10.1.0.0/27", "10.1.1.0/28", "fd00::/64")
		const capacity = 30 + 14
		model := map[string][]netip.Addr{}
		for step := range 3000 {
			o := owner(random.IntN(60))
			if random.IntN(2) == 0 {
				if got := p.Release(o.ID); !slices.Equal(got, model[o.ID]) {
					t.Fatalf("seed %d step %d: released %v, held %v", seed, step, got, model[o.ID])
				}
				delete(model, o.ID)
				continue
			}
			full := len(model) == capacity
			addrs, err := p.Allocate(o)
			var exhausted *ExhaustedError
			switch {
			case len(model[o.ID]) > 0:
				if !errors.Is(err, ErrHeld) {
					t.Fatalf("seed %d step %d: got %v %v, want ErrHeld", seed, step, addrs, err)
				}
			case full:
				if !errors.As(err, &exhausted) {
					t.Fatalf("seed %d step %d: got %v %v, want ExhaustedError", seed, step, addrs, err)
				}
			case err != nil || len(addrs) != 2:
				t.Fatalf("seed %d step %d: %d held, got %v %v", seed, step, len(model), addrs, err)
			default:
				for id, held := range model {
					if held[0] == addrs[0] || held[1] == addrs[1] {
						t.Fatalf("seed %d step %d: %v allocated twice, %s has %v", seed, step, addrs, id, held)
					}
				}
				model[o.ID] = addrs
			}
			if usage := p.Usage(); usage[0].Used+usage[1].Used != len(model) || usage[2].Used != len(model) {
				t.Fatalf("seed %d step %d: usage %v, model has %d", seed, step, usage, len(model))
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	p := pool(t, "10.1.0.0/16")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				o := owner(g*1000 + i)
				if _, err := p.Allocate(o); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					p.Release(o.ID)
				}
				p.Usage()
			}
		})
	}
	wg.Wait()
	if used := p.Usage()[0].Used; used != 800 {
		t.Errorf("%d in use, want 800", used)
	}
}

// FuzzPool tries any prefix and any history: no panic, nothing allocated twice or from outside.
func FuzzPool(f *testing.F) {
	f.Add("10.1.0.0/29", []byte{1, 2, 3, 0x81, 4})
	f.Add("fd00::/126", []byte{1, 0x81, 2, 0x82})
	f.Add("::/0", []byte{1})
	f.Fuzz(func(t *testing.T, text string, history []byte) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return
		}
		p, err := NewPool([]netip.Prefix{prefix})
		if err != nil {
			return
		}
		holder := map[netip.Addr]string{}
		for _, op := range history {
			o := owner(int(op & 0x7f))
			if op&0x80 != 0 {
				for _, addr := range p.Release(o.ID) {
					delete(holder, addr)
				}
				continue
			}
			addrs, err := p.Allocate(o)
			if err != nil {
				continue
			}
			if len(addrs) != 1 || !prefix.Contains(addrs[0]) || addrs[0] == prefix.Addr() {
				t.Fatalf("%s: got %v", prefix, addrs)
			}
			if other, taken := holder[addrs[0]]; taken {
				t.Fatalf("%s given to %s and %s", addrs[0], other, o.ID)
			}
			holder[addrs[0]] = o.ID
		}
	})
}

// An avoided address is not allocated and not free; it returns when it is no longer avoided.
func TestAvoid(t *testing.T) {
	p := pool(t, "10.0.0.0/29") // six addresses
	others := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("192.0.2.1")}
	p.Avoid(others)
	if u := p.Usage(); u[0].Free != 4 || u[0].Used != 0 {
		t.Errorf("usage is %+v, want 4 free", u)
	}
	var got []string
	for i := range 4 {
		a, err := p.Allocate(Owner{ID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, a[0].String())
	}
	if want := "10.0.0.2 10.0.0.4 10.0.0.5 10.0.0.6"; strings.Join(got, " ") != want {
		t.Errorf("allocated are %v, want %s", got, want)
	}
	var full *ExhaustedError
	if _, err := p.Allocate(Owner{ID: "late"}); !errors.As(err, &full) || full.Used != 4 || full.Avoided != 2 || !strings.Contains(err.Error(), "2 more are in use outside of the pool") {
		t.Errorf("a fifth: %v", err)
	}
	// A released address that is avoided since is skipped, too; a new range avoids the same.
	p.Release("0")
	p.Release("1")
	p.Avoid(append(others, netip.MustParseAddr("10.0.0.2")))
	if a, err := p.Allocate(Owner{ID: "5"}); err != nil || a[0].String() != "10.0.0.4" {
		t.Errorf("%v, %v; want 10.0.0.4", a, err)
	}
	if _, err := p.Allocate(Owner{ID: "6"}); !errors.As(err, &full) {
		t.Errorf("a released one that is avoided: %v", err)
	}
	p.Avoid(nil)
	if u := p.Usage(); u[0].Free != 3 {
		t.Errorf("usage is %+v, want 3 free", u)
	}
	p.Avoid(others)
	if err := p.SetPrefixes(nil); err != nil {
		t.Fatal(err)
	}
	if err := p.SetPrefixes([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")}); err != nil {
		t.Fatal(err)
	}
	if a, err := p.Allocate(Owner{ID: "7"}); err != nil || a[0].String() == "10.0.0.1" || a[0].String() == "10.0.0.3" {
		t.Errorf("%v, %v", a, err)
	}
}
