package datapath

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// openMaps opens the maps of a configuration without the programs that packets meet: loading those takes longer than most tests of tables.
// They are pinned below a root of their own unless cfg has one.
func openMaps(tb testing.TB, cfg Config) *objects {
	tb.Helper()
	testenv.Root(tb)
	if cfg.Root == "" {
		cfg.Root = bpffs(tb)
	}
	o, err := openObjects(cfg, nil, testLog(tb))
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
