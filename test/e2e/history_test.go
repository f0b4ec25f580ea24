package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/test/netlab"
)

const (
	sourceRoot   = "../.."
	layoutSource = "bpf/types.h" // the layouts of map entries
)

// oldest maps files to a text that they contain in the oldest commit to upgrade from: programs and maps have their
// names since then. Add a line when a change before the first release cannot be upgraded to.
var oldest = map[string]string{"cmd/beeline-agent/main.go": "newUninstallCommand", "bpf/maps.h": "ct_shares"}

// swap exchanges two members of one type in a struct of layoutSource: a layout of the same size with another meaning.
type swap struct{ structure, a, b string }

// change is a previous version that is made of these sources.
type change struct {
	name  string
	swaps []swap
}

// changes are the versions to upgrade from while no commit has other layouts: one with other maps that the agent fills
// from the cluster, and one with other maps that only the datapath fills.
var changes = []change{
	{"refilled", []swap{{"endpoint", "pod_mac", "host_mac"}, {"route", "next_hop_mac", "uplink_mac"}, {"service", "id", "affinity"}}},
	{"emptied", []swap{{"nat_entry", "source", "destination"}, {"ct_entry", "packets", "bytes"}}},
}

// predecessors returns the versions to upgrade from: the newest commit with other layouts, or else versions made of
// these sources.
func predecessors(t *testing.T) map[string]func(*testing.T) programs {
	t.Helper()
	if commit := commitOfOtherLayouts(t); commit != "" {
		return map[string]func(*testing.T) programs{commit[:12]: func(t *testing.T) programs { return buildCommit(t, commit) }}
	}
	all := map[string]func(*testing.T) programs{}
	for _, c := range changes {
		all[c.name] = func(t *testing.T) programs { return buildChanged(t, c) }
	}
	return all
}

// git runs git on this repository.
func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", sourceRoot}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), err
}

// comment matches text that does not affect layouts: comments, white space and includes.
var comment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|#include[^\n]*|\s+`)

// commitOfOtherLayouts returns the newest commit, HEAD or an ancestor, whose layouts differ from the working tree's,
// back to the oldest one that can be upgraded from. It is empty without such a commit and without history, as in an
// archive of the sources or a shallow clone.
func commitOfOtherLayouts(t *testing.T) string {
	t.Helper()
	if prefix, err := git(t, "rev-parse", "--show-prefix"); err != nil || prefix != "" {
		return ""
	}
	now, err := os.ReadFile(filepath.Join(sourceRoot, layoutSource))
	if err != nil {
		t.Fatal(err)
	}
	parents, err := git(t, "log", "--first-parent", "--format=%P", "HEAD", "--", layoutSource)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines("HEAD\n" + parents) {
		first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if first == "" { // the first commit has no parent
			break
		}
		for file, text := range oldest {
			if content, err := git(t, "show", first+":"+file); err != nil || !strings.Contains(content, text) {
				return ""
			}
		}
		then, err := git(t, "show", first+":"+layoutSource)
		if err != nil {
			t.Fatal(err)
		}
		if comment.ReplaceAllString(then, "") != comment.ReplaceAllString(string(now), "") {
			commit, err := git(t, "rev-parse", first)
			if err != nil {
				t.Fatal(err)
			}
			return commit
		}
	}
	return ""
}

// buildCommit builds the programs of a commit.
func buildCommit(t *testing.T, commit string) programs {
	t.Helper()
	title, err := git(t, "log", "-1", "--format=%h %cs %s", commit)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the version before is %s", title)
	sources := filepath.Join(t.TempDir(), "sources")
	archive := sources + ".tar"
	if _, err := git(t, "archive", "--output", archive, commit); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(sources, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", sources).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v: %s", err, out)
	}
	return buildSources(t, sources, "e2e-"+commit[:12])
}

// buildChanged builds the programs of a copy of these sources with the swaps of a change.
func buildChanged(t *testing.T, c change) programs {
	t.Helper()
	clang := "clang-19" // as for make generate
	if _, err := exec.LookPath(clang); err != nil {
		testenv.Missing(t, "no "+clang+" to compile the version before with")
	}
	sources := filepath.Join(t.TempDir(), "sources")
	if err := os.Mkdir(sources, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum", "bpf", "build/tools", "cmd", "internal", "lab"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(sources, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(sourceRoot, name), filepath.Join(sources, name)).CombinedOutput(); err != nil {
			t.Fatalf("copy the sources: %v: %s", err, out)
		}
	}
	for _, s := range c.swaps {
		if err := s.apply(filepath.Join(sources, layoutSource)); errors.Is(err, errNoMember) {
			err = s.apply(filepath.Join(sources, "bpf/types_policy.h"))
			if err != nil {
				t.Fatal(err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
	generate := exec.CommandContext(t.Context(), "go", "generate", "./internal/datapath/...")
	generate.Dir = sources
	generate.Env = append(os.Environ(), "BPF_CLANG="+clang, "BPF_STRIP=llvm-strip-19")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("compile the version before: %v\n%s", err, out)
	}
	return buildSources(t, sources, "e2e-"+c.name)
}

var errNoMember = errors.New("no such member")

// apply exchanges the members in the header.
func (s swap) apply(header string) error {
	text, err := os.ReadFile(header)
	if err != nil {
		return err
	}
	begin := bytes.Index(text, []byte("struct "+s.structure+" {\n"))
	if begin < 0 {
		return fmt.Errorf("%s: struct %s: %w", header, s.structure, errNoMember)
	}
	end := begin + bytes.Index(text[begin:], []byte("\n}"))
	member := regexp.MustCompile(`\b(` + s.a + `|` + s.b + `)\b`)
	seen := map[string]bool{}
	body := member.ReplaceAllStringFunc(string(text[begin:end]), func(name string) string {
		seen[name] = true
		if name == s.a {
			return s.b
		}
		return s.a
	})
	if len(seen) != 2 {
		return fmt.Errorf("%s: struct %s: members %s and %s: %w", header, s.structure, s.a, s.b, errNoMember)
	}
	return os.WriteFile(header, []byte(string(text[:begin])+body+string(text[end:])), 0o644)
}

// buildSources builds the programs of the sources in a directory. It logs progress, because a build may take minutes.
func buildSources(t *testing.T, sources, version string) programs {
	t.Helper()
	type result struct {
		netlab.Programs
		error
	}
	begin, built := time.Now(), make(chan result, 1)
	go func() {
		p, err := netlab.Build(sources, buildDir, version)
		built <- result{p, err}
	}()
	for {
		select {
		case r := <-built:
			if r.error != nil {
				t.Fatal(r.error)
			}
			t.Logf("built in %s", time.Since(begin).Round(time.Second))
			return r.Programs
		case <-time.After(30 * time.Second):
			t.Logf("go build runs for %s", time.Since(begin).Round(time.Second))
		}
	}
}
