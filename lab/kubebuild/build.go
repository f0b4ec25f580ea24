package kubebuild

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Printf reports progress to a person.
type Printf func(format string, args ...any)

// Build builds what the cache does not have for this version of Kubernetes; with names, only of these programs.
func Build(ctx context.Context, c Cache, kubernetes string, names []string, print Printf) error {
	for _, name := range names {
		if _, err := c.Path(kubernetes, name); err != nil {
			return err
		}
	}
	rows := missing(c, kubernetes, func(p program) bool { return len(names) == 0 || slices.Contains(names, p.name()) })
	total := 0
	for _, row := range rows {
		for _, m := range row {
			total += len(m.programs)
		}
	}
	if total == 0 {
		return nil
	}
	print("building %d programs for Kubernetes %s; all of them take about 13 minutes on two cores", total, kubernetes)
	b := &builder{cache: c, print: print, start: time.Now()}
	var rowsDone sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, row := range rows {
		rowsDone.Go(func() {
			for _, m := range row {
				if err := b.module(ctx, m); err != nil {
					cancel(fmt.Errorf("build %s: %w", m.name, err)) // which ends the other row; the first cause stays
					return
				}
			}
		})
	}
	rowsDone.Wait()
	return context.Cause(ctx)
}

// missing are the modules of queues, each only with the programs to build.
func missing(c Cache, kubernetes string, wanted func(program) bool) [][]module {
	var rows [][]module
	for _, queue := range queues(kubernetes) {
		var row []module
		for _, m := range queue {
			m.programs = slices.DeleteFunc(m.programs, func(p program) bool { return !wanted(p) || c.has(m, p) })
			if len(m.programs) > 0 {
				row = append(row, m)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

type builder struct {
	cache Cache
	print Printf
	start time.Time
	lock  sync.Mutex // of print
}

// module builds the programs of one module: all commands by one call, so that the last step of one, which keeps
// only one core busy, runs beside the others' compilation.
func (b *builder) module(ctx context.Context, m module) error {
	if err := os.MkdirAll(b.cache.module(m), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(b.cache.module(m), ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := makeModule(ctx, work, m); err != nil {
		return err
	}
	var commands, tests []program
	for _, p := range m.programs {
		if p.test {
			tests = append(tests, p)
		} else {
			commands = append(commands, p)
		}
	}
	if err := b.call(ctx, m, work, []string{"build"}, commands); err != nil {
		return err
	}
	for _, p := range tests {
		if err := b.call(ctx, m, work, []string{"test", "-c"}, []program{p}); err != nil {
			return err
		}
	}
	return nil
}

// call runs one `go build` or `go test -c`.
func (b *builder) call(ctx context.Context, m module, work string, verb []string, programs []program) error {
	if len(programs) == 0 {
		return nil
	}
	out := filepath.Join(work, "out")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	args := append(verb, "-p", "2", "-trimpath", "-tags", m.tags, "-gcflags", compiler, "-ldflags", m.linker)
	var packages, names []string
	for _, p := range programs {
		packages, names = append(packages, p.pkg), append(names, p.name())
	}
	target := out + "/"
	if len(programs) == 1 { // which also gives it its name
		target = filepath.Join(out, names[0])
	}
	if _, err := goCommand(ctx, work, append(append(args, "-o", target), packages...)...); err != nil {
		return err
	}
	for _, p := range programs {
		if err := b.cache.keep(m, p, filepath.Join(out, p.name())); err != nil {
			return fmt.Errorf("keep %s: %w", p.name(), err)
		}
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	b.print("built after %3.0f s: %s", time.Since(b.start).Seconds(), strings.Join(names, ", "))
	return nil
}
