package datapath

import "time"

// reportDropsNow has the next Read report drops, whenever it did so last.
func (r *FlowReader) reportDropsNow() { r.toldDrops = time.Time{} }

// silence keeps Read from running the programs that report late, until restore is called.
func (r *FlowReader) silence() (restore func()) {
	before := r.tell
	r.tell = tellers{}
	return func() { r.tell = before }
}
