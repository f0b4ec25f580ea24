package load

import (
	"github.com/cilium/ebpf"
)

// What tests outside the package need to know of it.
const (
	LayoutLength = layoutBytes
	SecondMark   = otherMark
)

var (
	Groups        = refersTo
	ImplicitTypes = beyondTypes
)

// CommittedPins are the names of the pins that a Commit has left below a root.
func CommittedPins(root string) (names []string, known bool, err error) { return committed(root) }

// LayoutsOfMaps gives the layout of each map of an object.
func LayoutsOfMaps(spec *ebpf.CollectionSpec) (map[string]string, error) { return layouts(spec) }

// CommittedList is what Commit writes.
func (o *Objects) CommittedList() []string { return o.Pins.list() }
