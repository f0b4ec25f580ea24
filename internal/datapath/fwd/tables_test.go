package fwd_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// What is written into a table comes back, for every kind of entry, and only differences are written.
func TestTablesRoundTrip(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	routes, err := r.D.Routes.All()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fixtures.RoutesOfNodeA(r.Netns.Devices["eth0"], r.Netns.Devices["tunnel"]), routes, fixtures.CompareAddresses, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("routes (-written +read):\n%s", diff)
	}
	if changed, err := r.D.Routes.Sync(routes); changed != 0 || err != nil {
		t.Errorf("%d routes are written again: %v", changed, err)
	}
	delete(routes, fixtures.Prefix("10.1.2.0/24"))
	routes[fixtures.Prefix("10.1.4.0/24")] = fwd.Route{Kind: fwd.RouteLocal}
	routes[fixtures.Prefix("10.1.1.0/24")] = fwd.Route{Kind: fwd.RouteCluster}
	if changed, err := r.D.Routes.Sync(routes); changed != 3 || err != nil {
		t.Errorf("%d routes changed, expected 3: %v", changed, err)
	}
	again, err := r.D.Routes.All()
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(routes, again) {
		t.Errorf("routes %v, expected %v", again, routes)
	}

	endpoints, err := r.D.Endpoints.All()
	if err != nil {
		t.Fatal(err)
	}
	if want := (fwd.Endpoint{Interface: r.Netns.Devices["blpoda"], PodMAC: fixtures.PodA.Mac, HostMAC: fixtures.PodA.Gateway}); len(endpoints) != 4 || endpoints[fixtures.PodA.V4] != want || endpoints[fixtures.PodA.V6] != want {
		t.Errorf("endpoints %v", endpoints)
	}
	delete(endpoints, fixtures.PodA.V6)
	if changed, err := r.D.Endpoints.Sync(endpoints); changed != 1 || err != nil {
		t.Errorf("%d endpoints changed, expected 1: %v", changed, err)
	}
	if err := errors.Join(r.D.Endpoints.Delete(fixtures.PodA.V4), r.D.Endpoints.Delete(fixtures.PodA.V4)); err != nil {
		t.Errorf("delete an endpoint twice: %v", err)
	}
	if endpoints, err = r.D.Endpoints.All(); err != nil || len(endpoints) != 2 {
		t.Errorf("endpoints %v: %v", endpoints, err)
	}
}

// For any table the datapath finds the route with the longest prefix, as a plain search in Go does. The
// next hop's link-layer address identifies the route.
func TestLongestPrefixWins(t *testing.T) {
	const tables, packets = 60, 100
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	random := testenv.Rand(t)
	found, none := 0, 0
	for range tables {
		routes := randomRoutes(random, 1+random.IntN(14), r.Netns.Devices["eth0"])
		if _, err := r.D.Routes.Sync(routes); err != nil {
			t.Fatal(err)
		}
		all := maps.Clone(routes)
		var cases []harness.Run
		var want []fwd.MAC
		for range packets {
			dst := randomAddress(random)
			src := fixtures.PodA.V4
			if dst.Is6() {
				src = fixtures.PodA.V6
			}
			cases = append(cases, harness.PodSends(fixtures.FromPod().Ip(src, dst).Udp(1, 2)))
			want = append(want, longest(all, dst).NextHopMAC)
		}
		r.Netns.Do(func() {
			for i, c := range cases {
				got, err := r.Run(c)
				if err != nil {
					t.Error(err)
					return
				}
				switch {
				case want[i] == fwd.MAC{} && got.Verdict == harness.VerdictNext:
					none++
				case want[i] != fwd.MAC{} && got.Verdict == harness.VerdictRedirect && fwd.MAC(got.Out[:6]) == want[i]:
					found++
				default:
					t.Errorf("verdict %s to % x, expected next hop % x, routes %v\n%s", got.Verdict, got.Out[:6], want[i], all, fixtures.Layers(c.In))
					return
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	if found < 500 || none < 500 {
		t.Errorf("%d packets found a route and %d did not: the tables do not try enough", found, none)
	}
}

// randomAddress is one of few: prefixes should hold each other and addresses.
func randomAddress(r *rand.Rand) netip.Addr {
	if r.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(3)), byte(r.IntN(4) * 64)})
	}
	var b [16]byte
	b[0], b[3], b[7], b[15] = 0xfd, byte(r.IntN(2)), byte(r.IntN(3)), byte(r.IntN(4))
	return netip.AddrFrom16(b)
}

func randomRoutes(r *rand.Rand, n, uplink int) map[netip.Prefix]fwd.Route {
	lengths := map[bool][]int{true: {16, 23, 24, 26, 32}, false: {32, 63, 64, 112, 128}}
	routes := map[netip.Prefix]fwd.Route{}
	for i := range n {
		a := randomAddress(r)
		p, err := a.Prefix(lengths[a.Is4()][r.IntN(5)])
		if err != nil {
			panic(err)
		}
		route := fwd.Route{Kind: fwd.RouteRemote, Interface: uplink, MTU: 1500, NextHop: fixtures.NodeB.V4, NextHopMAC: fwd.MAC{2, 0xff}, UplinkMAC: fixtures.NodeA.Mac}
		binary.BigEndian.PutUint32(route.NextHopMAC[2:], uint32(i))
		routes[p] = route
	}
	return routes
}

func longest(routes map[netip.Prefix]fwd.Route, a netip.Addr) fwd.Route {
	var best fwd.Route
	bits := -1
	for p, r := range routes {
		if p.Contains(a) && p.Bits() > bits {
			best, bits = r, p.Bits()
		}
	}
	return best
}

// The description of programs and maps that `beeline status` prints.
func TestInspect(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	described, err := r.D.Maps()
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]int{}
	for _, m := range described {
		entries[m.Name] = m.Entries
		// A trie takes nothing while it is empty, and what is kept with sockets has no bound; Linux 6.1 counts nothing of that
		// nor of ring buffers.
		free := slices.Contains([]string{"LPMTrie", "SkStorage", "RingBuf"}, m.Type)
		if m.Bytes == 0 && !free || m.MaxEntries == 0 && m.Type != "SkStorage" || m.Type == "" {
			t.Errorf("map %+v", m)
		}
	}
	if len(described) != len(load.PinnedMaps)+len(load.PrivateMaps) || entries[bpf.MapEndpoints] != 4 || entries[bpf.MapRoutes] != len(fixtures.RoutesOfNodeA(1, 2)) {
		t.Errorf("maps %+v", described)
	}
	if err := kernel.Required(); err != nil {
		t.Errorf("this kernel has loaded the datapath and yet %v", err)
	}
}

// A few routes change without a look at the others, unless the datapath would not find them by the lengths that it knows.
func TestChangeRoutes(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	former, err := r.D.Routes.All()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.D.Routes.Sync(former); err != nil {
		t.Fatal(err)
	}
	isNew, gone := fixtures.Prefix("10.1.4.0/24"), fixtures.Prefix("10.1.2.0/24")
	if err := r.D.Routes.Change(map[netip.Prefix]fwd.Route{isNew: {Kind: fwd.RouteCluster}}, []netip.Prefix{gone, fixtures.Prefix("10.1.77.0/24")}, false); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(former)
	want[isNew] = fwd.Route{Kind: fwd.RouteCluster}
	delete(want, gone)
	if changed, err := r.D.Routes.Sync(want); changed != 0 || err != nil {
		t.Errorf("a Sync behind it has changed %d routes: %v", changed, err)
	}
	length := map[netip.Prefix]fwd.Route{fixtures.Prefix("10.1.5.0/26"): {Kind: fwd.RouteCluster}}
	if err := r.D.Routes.Change(length, nil, false); !errors.Is(err, fwd.LengthsError) {
		t.Errorf("a route of a new length: %v", err)
	}
	nested := map[netip.Prefix]fwd.Route{fixtures.Prefix("10.1.1.7/32"): {Kind: fwd.RouteCluster}}
	if err := r.D.Routes.Change(nested, nil, true); !errors.Is(err, fwd.LengthsError) {
		t.Errorf("a route in another one while ranges are looked for first: %v", err)
	}
	maps.Copy(want, nested)
	if _, err := r.D.Routes.Sync(want); err != nil {
		t.Fatal(err)
	}
	if err := r.D.Routes.Change(nested, nil, true); err != nil {
		t.Errorf("a route in another one while the longest are looked for first: %v", err)
	}
}
