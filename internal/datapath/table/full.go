package table

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// sizeFlags names the flag that enlarges a map.
var sizeFlags = map[string]string{
	bpf.MapRoutes:         "--routes-max",
	bpf.MapServices:       "--services-max",
	bpf.MapServiceSources: "--services-max",
	bpf.MapServiceCounts:  "--services-max",
	bpf.MapBackends:       "--backends-max",
	bpf.MapMaglev:         "--backends-max",
	bpf.MapNat:            "--nat-max",
	bpf.MapNatPending:     "--nat-pending-max",
	bpf.MapAffinities:     "--affinities-max",
	bpf.MapAffinitiesExt:  "--affinities-max",
	bpf.MapIdentities:     "--identities-max",
	bpf.MapIdentityCidrs:  "--identities-max",
	bpf.MapPolicies:       "--policies-max",
	bpf.MapPolicyPorts:    "--policies-max",
	bpf.MapConntrack:      "--conntrack-max",
	bpf.MapCtSlots:        "--conntrack-max",
}

// SizeFlag names the flag that enlarges a map; empty if none does.
func SizeFlag(name string) string { return sizeFlags[name] }

// FullError reports that a map is full. Entries that it had before are retained.
type FullError struct {
	Map  string
	Size uint32
	// Flag enlarges the map.
	Flag string
}

func (e *FullError) Error() string {
	return fmt.Sprintf("map %s is full with %d entries: raise %s", e.Map, e.Size, e.Flag)
}

// FullOr is the error of a write; cleared is the error of rolling back a partial one.
func FullOr(name string, m *ebpf.Map, err, cleared error) error {
	switch {
	case errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC):
		err = &FullError{Map: name, Size: m.MaxEntries(), Flag: sizeFlags[name]}
	default:
		err = fmt.Errorf("write map %s: %w", name, err)
	}
	if cleared != nil {
		err = errors.Join(err, fmt.Errorf("roll back entries of map %s: %w", name, cleared))
	}
	return err
}
