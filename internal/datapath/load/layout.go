package load

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// beyondTypes are types of bpf/types.h that define what a map holds, but that the BTF of its key and value does not
// reach: enums whose values are stored in other types or are indexes, and the records of a ring buffer.
var beyondTypes = map[string][]string{
	bpf.MapRoutes:        {"route_kind"},
	bpf.MapGeneration:    {"generation_index"},
	bpf.MapDrops:         {"program", "drop_reason"},
	bpf.MapServices:      {"service_flag", "no_backend"},
	bpf.MapAffinities:    {"client_kind"},
	bpf.MapAffinitiesExt: {"client_kind"},
	bpf.MapNat:           {"nat_flag"},
	bpf.MapNatPending:    {"nat_flag"},
	bpf.MapIdentities:    {"identity"},
	bpf.MapIdentityCidrs: {"identity"},
	bpf.MapPolicies:      {"identity"},
	bpf.MapConntrack:     {"ct_flag"},
	bpf.MapCtNew:         {"ct_flag"},
	bpf.MapCtSlots:       {"ct_ring"},
	bpf.MapCtShares:      {"ct_ring"},
	bpf.MapFlows:         {"flow_event", "flow_kind", "drop_reason", "program"},
	bpf.MapFlowLost:      {"flow_kind", "flow_loss"},
	bpf.MapFlowDrops:     {"drop_reason", "program"},
}

// layouts hashes the layout of each pinned map: its type and flags, and the names, kinds, sizes and offsets of all
// that keys and values consist of. Versions with equal hashes can use each other's entries. The map's capacity is not
// part of the layout.
func layouts(spec *ebpf.CollectionSpec) (map[string]string, error) {
	all := make(map[string]string, len(PinnedMaps))
	for _, name := range PinnedMaps {
		h := sha256.New()
		if err := describeMap(h, spec, name); err != nil {
			return nil, fmt.Errorf("layout of map %s: %w", name, err)
		}
		all[name] = hex.EncodeToString(h.Sum(nil)[:layoutBytes])
	}
	return all, nil
}

const layoutBytes = 8

func describeMap(w io.Writer, spec *ebpf.CollectionSpec, name string) error {
	m := spec.Maps[name]
	fmt.Fprintf(w, "map %d %d %d %d\n", m.Type, m.KeySize, m.ValueSize, m.Flags)
	types := []btf.Type{m.Key, m.Value}
	for _, name := range beyondTypes[name] {
		t, err := spec.Types.AnyTypeByName(name)
		if err != nil {
			return err
		}
		types = append(types, t)
	}
	for _, t := range types {
		if t == nil { // a ring buffer has neither key nor value
			t = &btf.Void{}
		}
		if err := describeType(w, t); err != nil {
			return err
		}
	}
	return nil
}

// describeType writes a type with all that it consists of. It terminates, since map entries have no pointers.
func describeType(w io.Writer, t btf.Type) error {
	switch t := t.(type) {
	case *btf.Void:
		fmt.Fprintln(w, "void")
	case *btf.Int:
		fmt.Fprintf(w, "int %q %d %d\n", t.Name, t.Size, t.Encoding)
	case *btf.Enum:
		fmt.Fprintf(w, "enum %q %d %t %d\n", t.Name, t.Size, t.Signed, len(t.Values))
		for _, v := range t.Values {
			fmt.Fprintf(w, "%q %d\n", v.Name, v.Value)
		}
	case *btf.Array:
		fmt.Fprintf(w, "array %d\n", t.Nelems)
		return describeType(w, t.Type)
	case *btf.Typedef: // __be16 is not __u16
		fmt.Fprintf(w, "typedef %q %q\n", t.Name, t.Tags)
		return describeType(w, t.Type)
	case *btf.Const:
		return describeType(w, t.Type)
	case *btf.Volatile:
		return describeType(w, t.Type)
	case *btf.Struct:
		fmt.Fprintf(w, "struct %q %d %q %d\n", t.Name, t.Size, t.Tags, len(t.Members))
		return describeMembers(w, t.Members)
	case *btf.Union:
		fmt.Fprintf(w, "union %q %d %q %d\n", t.Name, t.Size, t.Tags, len(t.Members))
		return describeMembers(w, t.Members)
	default:
		return fmt.Errorf("unexpected type %T in a map entry", t)
	}
	return nil
}

func describeMembers(w io.Writer, members []btf.Member) error {
	for _, m := range members {
		fmt.Fprintf(w, "%q %d %d %q\n", m.Name, m.Offset, m.BitfieldSize, m.Tags)
		if err := describeType(w, m.Type); err != nil {
			return err
		}
	}
	return nil
}
