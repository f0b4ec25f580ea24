package datapath

import "slices"

// PoliciesLost tells, before Commit, whether programs of an earlier agent are attached and the tables of policies here do not say what
// those put into force, or they put none into force: what the new programs would do with these tables is to allow everything.
func (d *Datapath) PoliciesLost() (bool, error) {
	before := d.resized[bpfMapPolicedPods]
	if !slices.Contains(d.fresh, bpfMapPolicedPods) || before != nil && before.MaxEntries() > 1 {
		return false, nil
	}
	attached, err := d.Attachments()
	return len(attached) > 0, err
}
