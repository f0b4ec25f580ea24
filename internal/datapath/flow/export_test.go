package flow

import (
	"time"
)

// ReportDropsNow has the next Read report drops, whenever it did so last.
func (r *Reader) ReportDropsNow() { r.reportedDrops = time.Time{} }

// Silence keeps Read from running the programs that report late, until restore is called.
func (r *Reader) Silence() (restore func()) {
	before := r.reporters
	r.reporters = reporters{}
	return func() { r.reporters = before }
}
