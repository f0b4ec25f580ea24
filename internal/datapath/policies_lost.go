package datapath

import "slices"

// PoliciesFresh tells, before Commit, whether the tables of policies begin empty, and not with what an earlier agent put into force.
func (d *Datapath) PoliciesFresh() bool {
	before := d.resized[bpfMapPolicedPods] // with one entry where policies were left to others
	return slices.Contains(d.fresh, bpfMapPolicedPods) && (before == nil || before.MaxEntries() == 1)
}

// PoliciesLost tells, before Commit, whether programs of an earlier agent are attached and one of these tables begins without what those go by:
// with all of them empty the new programs would allow everything, and without one that the earlier agent did not have, nobody knows what.
func (d *Datapath) PoliciesLost() (bool, error) {
	if !d.PoliciesFresh() && !slices.ContainsFunc(policyMaps, d.isNew) {
		return false, nil
	}
	attached, err := d.Attachments()
	return len(attached) > 0, err
}

// isNew tells, before Commit, whether a map begins empty although maps like it outlive the agent.
func (d *Datapath) isNew(name string) bool {
	return slices.Contains(d.fresh, name) && d.resized[name] == nil
}
