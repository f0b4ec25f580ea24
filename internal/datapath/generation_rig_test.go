package datapath

import "testing"

// advances gives the generations of the tables and of policies.
func advances(tb testing.TB, o *objects) (tables, revision uint32) {
	tb.Helper()
	return generationNow(tb, o, generationTables), generationNow(tb, o, generationPolicy)
}

// generationNow gives one of the generations.
func generationNow(tb testing.TB, o *objects, index uint32) (now uint32) {
	tb.Helper()
	if err := o.maps.Generation.Lookup(index, &now); err != nil {
		tb.Fatal(err)
	}
	return now
}
