package testmaps

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Advances gives the generations of the tables and of policies.
func Advances(tb testing.TB, o *load.Objects) (tables, revision uint32) {
	tb.Helper()
	return GenerationNow(tb, o, table.GenerationTables), GenerationNow(tb, o, table.GenerationPolicy)
}

// GenerationNow gives one of the generations.
func GenerationNow(tb testing.TB, o *load.Objects, index uint32) (now uint32) {
	tb.Helper()
	if err := o.Maps.Generation.Lookup(index, &now); err != nil {
		tb.Fatal(err)
	}
	return now
}
