package status

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Bounds of a warning about a nearly full table, in percent of its size: above the first it starts, below the second
// it ends. The gap avoids repeated warnings.
const (
	tableWarns = 80
	tableCalms = 70
)

// tablesInterval is the interval at which the use of tables is checked.
const tablesInterval = time.Minute

// Tables watches for tables that are nearly full.
type Tables struct {
	read func() ([]table.MapInfo, error)
	beat *loop.Beat
	log  *slog.Logger

	mu sync.Mutex
	// nearly has a sentence for each of them.
	nearly map[string]string
}

// NewTables makes a Tables that counts entries by read.
func NewTables(read func() ([]table.MapInfo, error), beat *loop.Beat, log *slog.Logger) *Tables {
	return &Tables{read: read, beat: beat, log: log}
}

// look records the use of tables, and logs when a warning starts or ends.
func (t *Tables) look(all []table.MapInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := map[string]string{}
	for _, m := range all {
		share, warned := 100*m.Entries/max(1, int(m.MaxEntries)), t.nearly[m.Name] != ""
		if !m.Refuses() || share < tableCalms || share < tableWarns && !warned {
			continue
		}
		remedy := ""
		if flag := table.SizeFlag(m.Name); flag != "" {
			remedy = ": raise " + flag
		}
		now[m.Name] = fmt.Sprintf("table %s is nearly full: %d of %d entries%s", m.Name, m.Entries, m.MaxEntries, remedy)
		if !warned {
			t.log.Warn("table is nearly full", "table", m.Name, "entries", m.Entries, "size", m.MaxEntries, "flag", table.SizeFlag(m.Name))
		}
	}
	for name := range t.nearly {
		if now[name] == "" {
			t.log.Info("table is no longer nearly full", "table", name)
		}
	}
	t.nearly = now
}

// Problems has a sentence for each table that is nearly full.
func (t *Tables) Problems() (all []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, text := range t.nearly {
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// Run checks the tables periodically until ctx ends.
func (t *Tables) Run(ctx context.Context) error {
	l := loop.Loop{Beat: t.beat, Ticks: []*loop.Tick{{Every: tablesInterval, Do: func(time.Time) {
		all, err := t.read()
		if err != nil {
			t.log.Error("count the entries of tables", "error", err)
			return
		}
		t.look(all)
	}}}}
	return l.Run(ctx)
}
