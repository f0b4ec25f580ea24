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

	"github.com/beeline-cni/beeline/lab/wait"
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
	wanted := func(p program) bool { return len(names) == 0 || slices.Contains(names, p.name()) }
	rows := missing(c, kubernetes, wanted)
	b := &builder{cache: c, print: print, start: time.Now()}
	for _, row := range rows {
		for _, m := range row {
			b.total += len(m.programs)
		}
	}
	if b.total == 0 {
		return nil
	}
	print("building %d programs for Kubernetes %s; all of them take about 13 minutes on two cores", b.total, kubernetes)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var rowsDone sync.WaitGroup
	failures := make([]error, len(rows))
	for i, row := range rows {
		rowsDone.Go(func() {
			for _, m := range row {
				if err := b.module(ctx, m); err != nil {
					failures[i] = fmt.Errorf("build %s: %w", m.name, err)
					cancel()
					return
				}
			}
		})
	}
	rowsDone.Wait()
	for _, err := range failures { // the one that cancelled the other is the one that does not say so
		if err != nil && !strings.Contains(err.Error(), "signal: killed") {
			return err
		}
	}
	return ctx.Err()
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
	total int

	lock sync.Mutex
	done int
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
	var packages []string
	for _, p := range programs {
		packages = append(packages, p.pkg)
	}
	target := out + "/"
	if len(programs) == 1 { // which also gives it its name
		target = filepath.Join(out, programs[0].name())
	}
	watched, stopWatching := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { b.watch(watched, out, programs) })
	_, err := goCommand(ctx, work, append(append(args, "-o", target), packages...)...)
	stopWatching()
	watching.Wait()
	if err != nil {
		return err
	}
	for _, p := range programs {
		if err := b.cache.keep(m, p, filepath.Join(out, p.name())); err != nil {
			return fmt.Errorf("keep %s: %w", p.name(), err)
		}
	}
	return nil
}

// watch reports which programs appear, until the context ends.
func (b *builder) watch(ctx context.Context, dir string, programs []program) {
	seen := map[string]bool{}
	for ended := false; !ended; {
		if wait.For(ctx, time.Second) != nil {
			ended = true // and look once more
		}
		for _, p := range programs {
			info, err := os.Stat(filepath.Join(dir, p.name()))
			if err != nil || seen[p.name()] {
				continue
			}
			seen[p.name()] = true
			b.lock.Lock()
			b.done++
			b.print("built %d of %d after %3.0f s: %s, %d MB", b.done, b.total, time.Since(b.start).Seconds(), p.name(), info.Size()>>20)
			b.lock.Unlock()
		}
	}
}
