package cluster

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// running is a Source that runs until the test ends.
type running struct {
	t         *testing.T
	source    Source
	snapshots chan *Snapshot
}

// run starts a Source of dir. Unless reread, only notifications wake it: the test then proves that they arrive.
func run(t *testing.T, dir string, reread time.Duration) *running {
	t.Helper()
	m := NewManifests(dir, slog.New(slog.DiscardHandler)).(*manifests)
	m.rereadInterval = reread
	m.quietTime = 10 * time.Millisecond
	r := &running{t: t, source: m, snapshots: make(chan *Snapshot, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx, func(s *Snapshot) { r.snapshots <- s }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	return r
}

// expect waits until a snapshot with just these nodes arrives.
func (r *running) expect(names ...string) *Snapshot {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	var last []string
	for {
		select {
		case s := <-r.snapshots:
			last = nil
			for _, n := range s.Nodes {
				last = append(last, n.Name)
			}
			if cmp.Equal(names, last) {
				return s
			}
		case <-deadline:
			r.t.Fatalf("no snapshot with %v, last one has %v, problems %v", names, last, r.source.Problems())
		}
	}
}

// expectProblem waits until a problem contains text; for an empty text, until there is no problem.
func (r *running) expectProblem(text string) {
	r.t.Helper()
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		all := strings.Join(r.source.Problems(), "\n")
		if text == "" && all == "" || text != "" && strings.Contains(all, text) {
			return
		}
	}
	r.t.Fatalf("problems are %q, want %q", r.source.Problems(), text)
}

// put writes a file under another name and renames it into place.
func put(t *testing.T, path, data string) {
	t.Helper()
	beside := filepath.Join(filepath.Dir(path), ".beside")
	if err := os.WriteFile(beside, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, os.Rename(beside, path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const never = time.Hour

var (
	aYAML = nodeYAML("a", "192.0.2.1", "10.1.0.0/24")
	bYAML = nodeYAML("b", "192.0.2.2", "10.2.0.0/24")
)

func TestFilesComeChangeAndGo(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "b.yml"), bYAML)
	put(t, filepath.Join(dir, "notes.txt"), "kind: [")
	put(t, filepath.Join(dir, ".hidden.yaml"), "kind: [")
	must(t, os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700))
	r := run(t, dir, never)
	r.expect("b")

	put(t, filepath.Join(dir, "a.yaml"), aYAML)
	got := r.expect("a", "b")
	want := &Snapshot{Nodes: []Node{node("a", "192.0.2.1", "10.1.0.0/24"), node("b", "192.0.2.2", "10.2.0.0/24")}}
	if diff := cmp.Diff(want, got, addrs, asSlices, cmpopts.IgnoreFields(Snapshot{}, "Since")); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	r.expectProblem("")

	must(t, os.WriteFile(filepath.Join(dir, "b.yml"), []byte(nodeYAML("c", "192.0.2.2", "10.2.0.0/24")), 0o600)) // in place
	r.expect("a", "c")
	must(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "a.off")))
	r.expect("c")
	must(t, os.Remove(filepath.Join(dir, "b.yml")))
	if s := r.expect(); len(s.Nodes) != 0 {
		t.Errorf("nodes remain: %v", s.Nodes)
	}
}

func TestBrokenFileKeepsItsLastGoodState(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), aYAML)
	r := run(t, dir, never)
	r.expect("a")

	put(t, filepath.Join(dir, "a.yaml"), "# oops\n"+strings.Replace(aYAML, "10.1.0.0/24", "10.1.0.0/240", 1))
	r.expectProblem(filepath.Join(dir, "a.yaml") + `:6: Node a: spec.podCIDRs[0]: "10.1.0.0/240" is not a CIDR`)
	put(t, filepath.Join(dir, "b.yaml"), bYAML)
	r.expect("a", "b")

	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.expect("b")
	r.expectProblem("")
}

func TestEqualSnapshotIsNotDeliveredAgain(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), aYAML)
	r := run(t, dir, time.Millisecond)
	r.expect("a")
	put(t, filepath.Join(dir, "a.yaml"), "# a comment\n"+aYAML)
	put(t, filepath.Join(dir, "secret.yaml"), "apiVersion: v1\nkind: Secret\n")
	put(t, filepath.Join(dir, "broken.yaml"), "kind: [")
	r.expectProblem("broken.yaml")
	put(t, filepath.Join(dir, "b.yaml"), bYAML)
	select {
	case s := <-r.snapshots:
		if len(s.Nodes) != 2 {
			t.Errorf("a snapshot without a change was delivered: %v", s)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the change was not delivered")
	}
}

func TestDirectoryComesLaterAndIsReplaced(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "deep", "manifests")
	r := run(t, dir, never)
	r.expectProblem("no such file or directory")

	must(t, os.MkdirAll(dir, 0o700))
	put(t, filepath.Join(dir, "a.yaml"), aYAML)
	r.expect("a")
	r.expectProblem("")

	must(t, os.Rename(dir, dir+".old")) // gone: the last state remains
	r.expectProblem("no such file or directory")
	must(t, os.Mkdir(dir, 0o700))
	put(t, filepath.Join(dir, "b.yaml"), bYAML)
	r.expect("b")
	put(t, filepath.Join(dir, "a.yaml"), aYAML) // the new directory is watched
	r.expect("a", "b")
}

// TestConfigMap replaces files like the kubelet: they are links through ..data, which is swapped.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(name string, files map[string]string) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		for file, data := range files {
			must(t, os.WriteFile(filepath.Join(dir, name, file), []byte(data), 0o600))
		}
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..1", map[string]string{"nodes.yaml": aYAML})
	must(t, os.Symlink("..data/nodes.yaml", filepath.Join(dir, "nodes.yaml")))
	r := run(t, dir, never)
	r.expect("a")
	version("..2", map[string]string{"nodes.yaml": aYAML + "---\n" + bYAML})
	r.expect("a", "b")
	version("..3", map[string]string{"other.yaml": aYAML})
	r.expectProblem("nodes.yaml:1: ") // a dangling link is broken, not deleted
}

func TestDirectoryIsALinkThatIsSwapped(t *testing.T) {
	base := t.TempDir()
	link := filepath.Join(base, "current")
	for name, data := range map[string]string{"one": aYAML, "two": bYAML} {
		must(t, os.Mkdir(filepath.Join(base, name), 0o700))
		must(t, os.WriteFile(filepath.Join(base, name, "n.yaml"), []byte(data), 0o600))
	}
	must(t, os.Symlink("one", link))
	r := run(t, link, never)
	r.expect("a")
	must(t, os.Symlink("two", link+".new"))
	must(t, os.Rename(link+".new", link))
	r.expect("b")
	put(t, filepath.Join(base, "two", "n.yaml"), aYAML)
	r.expect("a")
}

// TestRereadFindsWhatIsNotNotified changes the target of a link, of which the directory gets no notification.
func TestRereadFindsWhatIsNotNotified(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	target := filepath.Join(elsewhere, "n.yaml")
	must(t, os.WriteFile(target, []byte(aYAML), 0o600))
	must(t, os.Symlink(target, filepath.Join(dir, "n.yaml")))
	r := run(t, dir, 20*time.Millisecond)
	r.expect("a")
	must(t, os.WriteFile(target, []byte(bYAML), 0o600))
	r.expect("b")
}

func TestSnapshotNode(t *testing.T) {
	s := &Snapshot{Nodes: []Node{{Name: "a"}, {Name: "b"}}}
	if n, ok := s.Node("b"); !ok || n.Name != "b" {
		t.Errorf("got %v %v", n, ok)
	}
	if _, ok := s.Node("c"); ok {
		t.Error("found a missing node")
	}
}

// A Source that starts on a broken file cannot know its last valid content: snapshots are incomplete until the file
// is valid.
func TestIncompleteUntilEveryFileWasRightOnce(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), aYAML)
	put(t, filepath.Join(dir, "b.yaml"), "kind: [")
	r := run(t, dir, never)
	if s := r.expect("a"); !s.Incomplete || !slices.Equal(s.Partial, AllKinds) {
		t.Error("a snapshot without a file that was never valid is complete")
	}
	put(t, filepath.Join(dir, "b.yaml"), bYAML)
	if s := r.expect("a", "b"); s.Incomplete || len(s.Partial) > 0 {
		t.Error("a snapshot of valid files only is incomplete")
	}
	put(t, filepath.Join(dir, "b.yaml"), "kind: [")
	r.expectProblem("b.yaml:1:")
	put(t, filepath.Join(dir, "c.yaml"), nodeYAML("c", "192.0.2.3", "10.3.0.0/24"))
	if s := r.expect("a", "b", "c"); s.Incomplete || len(s.Partial) > 0 {
		t.Error("a file whose last valid state is active makes the snapshot incomplete")
	}
}

// The kinds in a conflicting file are known: Services do not wait for Nodes.
func TestPartialOfKindsInDoubt(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), aYAML)
	put(t, filepath.Join(dir, "b.yaml"), aYAML)
	r := run(t, dir, never)
	if s := r.expect("a"); !slices.Equal(s.Partial, Kinds{KindNode}) {
		t.Errorf("in doubt are %v, want Nodes", s.Partial)
	}
}
