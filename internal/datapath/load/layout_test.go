package load_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// structOf returns a struct of the object, to change it.
func structOf(tb testing.TB, spec *ebpf.CollectionSpec, name string) *btf.Struct {
	tb.Helper()
	var s *btf.Struct
	if err := spec.Types.TypeByName(name, &s); err != nil {
		tb.Fatal(err)
	}
	return s
}

func memberOf(tb testing.TB, s *btf.Struct, name string) *btf.Member {
	tb.Helper()
	i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == name })
	if i < 0 {
		tb.Fatalf("struct %s has no %s", s.Name, name)
	}
	return &s.Members[i]
}

// swap exchanges two members of one size.
func swap(tb testing.TB, spec *ebpf.CollectionSpec, of, one, other string) {
	tb.Helper()
	s := structOf(tb, spec, of)
	a, b := memberOf(tb, s, one), memberOf(tb, s, other)
	a.Name, b.Name = b.Name, a.Name
}

func layoutsOf(tb testing.TB, change func(*ebpf.CollectionSpec)) map[string]string {
	tb.Helper()
	spec, err := bpf.Load()
	if err != nil {
		tb.Fatal(err)
	}
	change(spec)
	all, err := load.LayoutsOfMaps(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// What changes the meaning of a map's entries changes its layout and no other; the size does not.
func TestLayoutIsMeaning(t *testing.T) {
	unchanged := layoutsOf(t, func(*ebpf.CollectionSpec) {})
	enum := func(spec *ebpf.CollectionSpec, name string) *btf.Enum {
		var e *btf.Enum
		if err := spec.Types.TypeByName(name, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	for name, c := range map[string]struct {
		change func(*ebpf.CollectionSpec)
		want   []string
	}{
		"another size": {func(spec *ebpf.CollectionSpec) { spec.Maps[bpf.MapBackends].MaxEntries++ }, nil},
		"flags":        {func(spec *ebpf.CollectionSpec) { spec.Maps[bpf.MapBackends].Flags ^= 1 }, []string{bpf.MapBackends}},
		"kind":         {func(spec *ebpf.CollectionSpec) { spec.Maps[bpf.MapNatPending].Type = ebpf.LRUHash }, []string{bpf.MapNatPending}},
		"members of one size change places": {
			func(spec *ebpf.CollectionSpec) { swap(t, spec, "endpoint", "pod_mac", "host_mac") }, []string{bpf.MapEndpoints},
		},
		"a struct within others": {
			func(spec *ebpf.CollectionSpec) { swap(t, spec, "backend_set", "id", "maglev") }, []string{bpf.MapServices},
		},
		"byte order": {func(spec *ebpf.CollectionSpec) {
			s := structOf(t, spec, "backend")
			memberOf(t, s, "port").Type = memberOf(t, s, "padding").Type
		}, []string{bpf.MapAffinities, bpf.MapAffinitiesExt, bpf.MapBackends}},
		"an offset": {func(spec *ebpf.CollectionSpec) { memberOf(t, structOf(t, spec, "uplink"), "mtu").Offset -= 8 }, []string{bpf.MapUplinks}},
		"the length of an array": {func(spec *ebpf.CollectionSpec) {
			a := *memberOf(t, structOf(t, spec, "maglev_block"), "entries").Type.(*btf.Array)
			a.Nelems--
			memberOf(t, structOf(t, spec, "maglev_block"), "entries").Type = &a
		}, []string{bpf.MapMaglev}},
		"a tag": {func(spec *ebpf.CollectionSpec) {
			structOf(t, spec, "nat_owner").Tags = []string{"counts otherwise"}
		}, []string{bpf.MapNatOwners}},
		"a value of an enum": {func(spec *ebpf.CollectionSpec) { enum(spec, "service_flag").Values[0].Value = 64 }, []string{bpf.MapServices}},
		"another value":      {func(spec *ebpf.CollectionSpec) { enum(spec, "route_kind").Values[1].Name = "ROUTE_LOOP" }, []string{bpf.MapRoutes}},
		"records of events":  {func(spec *ebpf.CollectionSpec) { swap(t, spec, "flow_event", "ingress", "egress") }, []string{bpf.MapFlows}},
	} {
		var got []string
		for of, layout := range layoutsOf(t, c.change) {
			if layout != unchanged[of] {
				got = append(got, of)
			}
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: layouts of %q change, want %q", name, got, c.want)
		}
	}
}

// Every enum of the object is part of a layout, or pinned maps do not contain it.
func TestEveryEnumHasAMap(t *testing.T) {
	spec, err := bpf.Load()
	if err != nil {
		t.Fatal(err)
	}
	// Used by private maps, by the agent only, or by the configuration.
	private := []string{"enforce_flag", "icmp_error_kind", "timeout", "flow_mode"}
	declared := slices.Concat(private, slices.Concat(slices.Collect(maps.Values(load.ImplicitTypes))...))
	for _, m := range structOf(t, spec, "abi").Members {
		if !slices.Contains(declared, m.Name) && m.Name != "flush_pod_args" { // a program's parameter
			t.Errorf("no map's layout depends on %s", m.Name)
		}
	}
	for name := range load.ImplicitTypes {
		if !slices.Contains(load.PinnedMaps, name) {
			t.Errorf("%s is not a pinned map", name)
		}
	}
}

// The list of pins is the target of a symbolic link, which is shorter than a page.
func TestPinsFitALink(t *testing.T) {
	n := 0
	for name, layout := range layoutsOf(t, func(*ebpf.CollectionSpec) {}) {
		if n += len(name+load.LayoutSeparator+layout+load.SecondMark) + 1; strings.Contains(name, load.LayoutSeparator) || len(layout) != 2*load.LayoutLength {
			t.Errorf("pin of %s is %s", name, layout)
		}
	}
	if n > 2500 {
		t.Errorf("%d bytes", n)
	}
}
