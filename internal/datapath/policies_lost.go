package datapath

import "slices"

// PoliciesFresh tells, before Commit, whether the tables of policies begin empty, and not with what an earlier agent put into force.
func (d *Datapath) PoliciesFresh() bool {
	before := d.resized[bpfMapPolicedPods] // with one entry where policies were left to others
	return slices.Contains(d.fresh, bpfMapPolicedPods) && (before == nil || before.MaxEntries() == 1)
}

// PoliciesLost tells, before Commit, whether besides programs of an earlier agent are attached: what the new ones would do with these tables
// is to allow everything.
func (d *Datapath) PoliciesLost() (bool, error) {
	if !d.PoliciesFresh() {
		return false, nil
	}
	attached, err := d.Attachments()
	return len(attached) > 0, err
}
