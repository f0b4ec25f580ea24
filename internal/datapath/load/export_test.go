package load

import (
	"github.com/cilium/ebpf"
)

const (
	LayoutLength = layoutBytes
	SecondMark   = otherMark
)

var (
	Groups        = refersTo
	ImplicitTypes = beyondTypes
)

// CommittedPins are the pins that a Commit listed below a root.
func CommittedPins(root string) (names []string, known bool, err error) { return committed(root) }

func LayoutsOfMaps(spec *ebpf.CollectionSpec) (map[string]string, error) { return layouts(spec) }

// CommittedList is what Commit writes.
func (o *Objects) CommittedList() []string { return o.Pins.list() }
