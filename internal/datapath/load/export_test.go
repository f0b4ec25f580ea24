package load

import (
	"time"

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

// Age makes the last attempt to load a program older.
func (o *Objects) Age(program string, by time.Duration) {
	last := o.rejected[program]
	last.at = last.at.Add(-by)
	o.rejected[program] = last
}

// WhileLoading runs f while a program seems to be loaded.
func (o *Objects) WhileLoading(f func()) {
	o.loading.Lock()
	defer o.loading.Unlock()
	f()
}

// RetryAfter is how long a rejected program is not tried again.
const RetryAfter = retryAfter
