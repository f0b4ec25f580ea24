package flow

import (
	"time"
)

// ReportDropsNow makes the next Read report drops, even if it did so less than a second ago.
func (r *Reader) ReportDropsNow() { r.reportedDrops = time.Time{} }

// Silence keeps Read from running the reporters until restore is called.
func (r *Reader) Silence() (restore func()) {
	before := r.reporters
	r.reporters = reporters{}
	return func() { r.reporters = before }
}
