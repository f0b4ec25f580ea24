package load_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// A directory on another file system cannot hold pins: Open reports that.
func TestOpenNeedsBPFFS(t *testing.T) {
	testenv.Root(t)
	root := filepath.Join(t.TempDir(), "not", "yet", "there")
	d, err := datapath.Open(config.Datapath{Root: root}, fixtures.TestLog(t))
	if err == nil {
		d.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "not on a BPF file system") {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(root); err == nil {
		t.Error("the directory was made nevertheless")
	}
}

// reopen opens the tables again as the next agent does, with a Sync that changes nothing.
func reopen(t *testing.T, cfg config.Datapath) *harness.Opened {
	t.Helper()
	d, err := harness.Open(cfg, nil, fixtures.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if _, err := d.Endpoints.Sync(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Routes.Sync(nil); err != nil {
		t.Fatal(err)
	}
	return d
}

// An upgrade from a datapath without the map `generation` changes no table entry, but flow cache entries must become
// valid, which generation 0 prevents.
func TestFreshGenerationBegins(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), EBPFRouting: true}
	d := reopen(t, cfg)
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.Objects.Pins.Path(bpf.MapGeneration)); err != nil {
		t.Fatal(err)
	}
	d = reopen(t, cfg)
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	var now uint32
	if err := d.Objects.Maps.Generation.Lookup(uint32(0), &now); err != nil || now == 0 {
		t.Errorf("generation is %d, %v", now, err)
	}
}

// What the programs of an earlier agent have cached is not valid for those of the next one, whose configuration may allow
// less: plaintext, for example.
func TestNextAgentCachesAnew(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), EBPFRouting: true}
	var generations []uint32
	for range 2 {
		d := reopen(t, cfg)
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
		var now uint32
		if err := d.Objects.Maps.Generation.Lookup(uint32(0), &now); err != nil {
			t.Fatal(err)
		}
		generations = append(generations, now)
	}
	if generations[0] == generations[1] {
		t.Errorf("both agents have generation %d", generations[0])
	}
}

// A Commit that fails midway and is called again leaves every map pinned.
func TestCommitAgain(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), EBPFRouting: true}
	d := reopen(t, cfg)
	inTheWay := filepath.Join(d.Objects.Pins.Path(bpf.MapDrops), "x")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err == nil {
		t.Fatal("a directory in place of a pin: no error")
	}
	if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, name := range load.PinnedMaps {
		if _, err := os.Stat(d.Objects.Pins.Path(name)); err != nil {
			t.Errorf("after the second attempt: %v", err)
		}
	}
}

// Programs of two agents mark packets with the same numbers: while the second one replaces them, packets pass both.
func TestMarksOutliveAgent(t *testing.T) {
	cfg := config.Datapath{Root: fixtures.Bpffs(t), EBPFRouting: true}
	first := reopen(t, cfg).Objects.Config
	if first.Handled == 0 || first.MacvlanSource == 0 {
		t.Fatalf("numbers are %d and %d", first.Handled, first.MacvlanSource)
	}
	if next := reopen(t, cfg).Objects.Config; next.Handled != first.Handled || next.MacvlanSource != first.MacvlanSource {
		t.Errorf("numbers are %d and %d, and of the next agent %d and %d", first.Handled, first.MacvlanSource, next.Handled, next.MacvlanSource)
	}
	if err := os.Remove(load.MarksPath(cfg.Root)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("0,x", load.MarksPath(cfg.Root)); err != nil {
		t.Fatal(err)
	}
	if next := reopen(t, cfg).Objects.Config; next.Handled == first.Handled || next.Handled == 0 {
		t.Errorf("without the file the number is %d, before %d", next.Handled, first.Handled)
	}
}
