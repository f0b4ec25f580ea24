// Package testmaps opens the maps of a configuration for tests of tables.
package testmaps

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Open opens the maps of a configuration without the programs that packets meet: loading those takes longer than most tests of tables.
// They are pinned below a root of their own unless cfg has one.
func Open(tb testing.TB, cfg config.Datapath) *load.Objects {
	tb.Helper()
	testenv.Root(tb)
	if cfg.Root == "" {
		cfg.Root = fixtures.Bpffs(tb)
	}
	o, err := load.Open(cfg, nil, fixtures.TestLog(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := o.Close(); err != nil {
			tb.Error(err)
		}
	})
	return o
}
