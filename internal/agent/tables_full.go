package agent

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

// When a table is worth a warning, and when no more: shares of its size in hundredths. In between nothing changes, or a table at the bound
// would be told of again and again.
const (
	tableWarns = 80
	tableCalms = 70
)

// tablesInterval is the time between two looks at how full the tables are.
const tablesInterval = time.Minute

// fullTables are the tables that are about to have no room for what is new.
type fullTables struct {
	log *slog.Logger

	mu sync.Mutex
	// nearly has a sentence for each of them.
	nearly map[string]string
}

// look takes note of how full the tables are, and has the log say so when that becomes worth a warning, and when no more.
func (f *fullTables) look(all []table.MapInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := map[string]string{}
	for _, m := range all {
		share, warned := 100*m.Entries/max(1, int(m.MaxEntries)), f.nearly[m.Name] != ""
		if !m.Refuses() || share < tableCalms || share < tableWarns && !warned {
			continue
		}
		remedy := ""
		if flag := table.SizeFlag(m.Name); flag != "" {
			remedy = ": raise " + flag
		}
		now[m.Name] = fmt.Sprintf("table %s is nearly full: %d of %d entries%s", m.Name, m.Entries, m.MaxEntries, remedy)
		if !warned {
			f.log.Warn("table is nearly full", "table", m.Name, "entries", m.Entries, "size", m.MaxEntries, "flag", table.SizeFlag(m.Name))
		}
	}
	for name := range f.nearly {
		if now[name] == "" {
			f.log.Info("table is not nearly full any more", "table", name)
		}
	}
	f.nearly = now
}

// problems has a sentence for each table that is nearly full.
func (f *fullTables) problems() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, text := range f.nearly {
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// watchTables looks at the tables now and then until ctx ends.
func (a *Agent) watchTables(ctx context.Context) error {
	l := loop.Loop{Beat: a.beats.Add("the loop of tables"), Ticks: []*loop.Tick{{Every: tablesInterval, Do: func(time.Time) {
		all, err := a.datapath.Maps()
		if err != nil {
			a.log.Error("how full the tables are is not known", "error", err)
			return
		}
		a.tables.look(all)
	}}}}
	return l.Run(ctx)
}
