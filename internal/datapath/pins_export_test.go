package datapath

import "github.com/cilium/ebpf"

// What tests outside the package need to know of it.
const (
	layoutLength = layoutBytes
	secondMark   = otherMark
)

var (
	groups        = refersTo
	implicitTypes = beyondTypes
)

// committedPins are the names of the pins that a Commit has left below a root.
func committedPins(root string) (names []string, known bool, err error) { return committed(root) }

// layoutsOfMaps gives the layout of each map of an object.
func layoutsOfMaps(spec *ebpf.CollectionSpec) (map[string]string, error) { return layouts(spec) }

// committedList is what Commit writes.
func (o *objects) committedList() []string { return o.pins.list() }
