package datapath

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/testenv"
)

var compareAddresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// What is written into a table comes back, for every kind of entry, and only differences are written.
func TestTablesRoundTrip(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	routes, err := r.d.Routes.All()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(routesOfNodeA(r.stage.devices["eth0"], r.stage.devices["tunnel"]), routes, compareAddresses, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("routes (-written +read):\n%s", diff)
	}
	if changed, err := r.d.Routes.Sync(routes); changed != 0 || err != nil {
		t.Errorf("%d routes are written again: %v", changed, err)
	}
	delete(routes, prefix("10.1.2.0/24"))
	routes[prefix("10.1.4.0/24")] = Route{Kind: RouteLocal}
	routes[prefix("10.1.1.0/24")] = Route{Kind: RouteCluster}
	if changed, err := r.d.Routes.Sync(routes); changed != 3 || err != nil {
		t.Errorf("%d routes changed, expected 3: %v", changed, err)
	}
	again, err := r.d.Routes.All()
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(routes, again) {
		t.Errorf("routes %v, expected %v", again, routes)
	}

	endpoints, err := r.d.Endpoints.All()
	if err != nil {
		t.Fatal(err)
	}
	if want := (Endpoint{Interface: r.stage.devices["blpoda"], PodMAC: podA.mac, HostMAC: podA.gateway}); len(endpoints) != 4 || endpoints[podA.v4] != want || endpoints[podA.v6] != want {
		t.Errorf("endpoints %v", endpoints)
	}
	delete(endpoints, podA.v6)
	if changed, err := r.d.Endpoints.Sync(endpoints); changed != 1 || err != nil {
		t.Errorf("%d endpoints changed, expected 1: %v", changed, err)
	}
	if err := errors.Join(r.d.Endpoints.Delete(podA.v4), r.d.Endpoints.Delete(podA.v4)); err != nil {
		t.Errorf("delete an endpoint twice: %v", err)
	}
	if endpoints, err = r.d.Endpoints.All(); err != nil || len(endpoints) != 2 {
		t.Errorf("endpoints %v: %v", endpoints, err)
	}
}

// For any table the datapath finds the route with the longest prefix, as a plain search in Go does. The
// next hop's link-layer address tells which route it found.
func TestLongestPrefixWins(t *testing.T) {
	const tables, packets = 60, 100
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	random := testenv.Rand(t)
	found, none := 0, 0
	for range tables {
		routes := randomRoutes(random, 1+random.IntN(14), r.stage.devices["eth0"])
		if _, err := r.d.Routes.Sync(routes); err != nil {
			t.Fatal(err)
		}
		all := maps.Clone(routes)
		var cases []run
		var want []MAC
		for range packets {
			dst := randomAddress(random)
			src := podA.v4
			if dst.Is6() {
				src = podA.v6
			}
			cases = append(cases, podSends(fromPod().ip(src, dst).udp(1, 2)))
			want = append(want, longest(all, dst).NextHopMAC)
		}
		r.stage.do(func() {
			for i, c := range cases {
				got, err := r.run(c)
				if err != nil {
					t.Error(err)
					return
				}
				switch {
				case want[i] == MAC{} && got.verdict == verdictNext:
					none++
				case want[i] != MAC{} && got.verdict == verdictRedirect && MAC(got.out[:6]) == want[i]:
					found++
				default:
					t.Errorf("verdict %s to % x, expected next hop % x, routes %v\n%s", got.verdict, got.out[:6], want[i], all, layers(c.in))
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

func randomRoutes(r *rand.Rand, n, uplink int) map[netip.Prefix]Route {
	lengths := map[bool][]int{true: {16, 23, 24, 26, 32}, false: {32, 63, 64, 112, 128}}
	routes := map[netip.Prefix]Route{}
	for i := range n {
		a := randomAddress(r)
		p, err := a.Prefix(lengths[a.Is4()][r.IntN(5)])
		if err != nil {
			panic(err)
		}
		route := Route{Kind: RouteRemote, Interface: uplink, MTU: 1500, NextHop: nodeB.v4, NextHopMAC: MAC{2, 0xff}, UplinkMAC: nodeA.mac}
		binary.BigEndian.PutUint32(route.NextHopMAC[2:], uint32(i))
		routes[p] = route
	}
	return routes
}

func longest(routes map[netip.Prefix]Route, a netip.Addr) Route {
	var best Route
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
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	described, err := r.d.Maps()
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
	if len(described) != len(pinnedMaps)+len(privateMaps) || entries[bpfMapEndpoints] != 4 || entries[bpfMapRoutes] != len(routesOfNodeA(1, 2)) {
		t.Errorf("maps %+v", described)
	}
	if err := Required(); err != nil {
		t.Errorf("this kernel has loaded the datapath and yet %v", err)
	}
}

// A few routes change without a look at the others, unless the datapath would not find them by the lengths that it knows.
func TestChangeRoutes(t *testing.T) {
	r := newRig(t, Config{EBPFRouting: true, Masquerade: true})
	former, err := r.d.Routes.All()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.d.Routes.Sync(former); err != nil {
		t.Fatal(err)
	}
	isNew, gone := prefix("10.1.4.0/24"), prefix("10.1.2.0/24")
	if err := r.d.Routes.Change(map[netip.Prefix]Route{isNew: {Kind: RouteCluster}}, []netip.Prefix{gone, prefix("10.1.77.0/24")}, false); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(former)
	want[isNew] = Route{Kind: RouteCluster}
	delete(want, gone)
	if changed, err := r.d.Routes.Sync(want); changed != 0 || err != nil {
		t.Errorf("a Sync behind it has changed %d routes: %v", changed, err)
	}
	length := map[netip.Prefix]Route{prefix("10.1.5.0/26"): {Kind: RouteCluster}}
	if err := r.d.Routes.Change(length, nil, false); !errors.Is(err, lengthsError) {
		t.Errorf("a route of a new length: %v", err)
	}
	nested := map[netip.Prefix]Route{prefix("10.1.1.7/32"): {Kind: RouteCluster}}
	if err := r.d.Routes.Change(nested, nil, true); !errors.Is(err, lengthsError) {
		t.Errorf("a route in another one while ranges are looked for first: %v", err)
	}
	maps.Copy(want, nested)
	if _, err := r.d.Routes.Sync(want); err != nil {
		t.Fatal(err)
	}
	if err := r.d.Routes.Change(nested, nil, true); err != nil {
		t.Errorf("a route in another one while the longest are looked for first: %v", err)
	}
}
