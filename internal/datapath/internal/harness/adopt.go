package harness

import (
	"log/slog"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
)

// OpenTables is what Open does with maps, without loading programs.
func OpenTables(t testing.TB, cfg config.Datapath, log *slog.Logger) *Opened {
	t.Helper()
	d, err := Open(cfg, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}
