package testmaps

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Advances gives the generations of the tables and of policies.
func Advances(tb testing.TB, o *load.Objects) (tables, revision uint32) {
	tb.Helper()
	tables, err := o.Generation.At(table.GenerationTables)
	if err != nil {
		tb.Fatal(err)
	}
	if revision, err = o.Generation.At(table.GenerationPolicy); err != nil {
		tb.Fatal(err)
	}
	return tables, revision
}
