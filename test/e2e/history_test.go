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

	"github.com/beeline-cni/beeline/test/netlab"
)

const (
	sourceRoot   = "../.."
	objectFiles  = "internal/datapath/*_bpfel.o"
	layoutSource = "bpf/types.h"
)

// git runs a command of git on this repository.
func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", sourceRoot}, args...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return strings.TrimSpace(string(out)), err
}

// needHistory skips the test where these sources have no history of their own: an archive of them, or one in a repository of something else.
func needHistory(t *testing.T) {
	t.Helper()
	if prefix, err := git(t, "rev-parse", "--show-prefix"); err != nil || prefix != "" {
		t.Skipf("these sources are no git repository, so there is no version before them to build: %v", err)
	}
}

// ancestor is the newest commit among HEAD and its ancestors that differs, of those between which files of this pattern change.
func ancestor(t *testing.T, files string, differs func(commit string) (bool, error)) string {
	t.Helper()
	list, err := git(t, "log", "--format=%P", "HEAD", "--", files)
	if err != nil {
		t.Fatal(err)
	}
	for parents := range strings.Lines("HEAD\n" + list) {
		first, _, _ := strings.Cut(strings.TrimSpace(parents), " ")
		if first == "" { // of the first commit
			continue
		}
		if _, err := git(t, "cat-file", "-e", first+"^{commit}"); err != nil {
			break // a shallow clone ends here
		}
		other, err := differs(first)
		if err != nil {
			t.Fatal(err)
		}
		if other {
			commit, err := git(t, "rev-parse", first)
			if err != nil {
				t.Fatal(err)
			}
			return commit
		}
	}
	t.Skipf("the history that is here has no commit in which %s differ from those of the working tree: a clone with all of it does (git fetch --unshallow)", files)
	return ""
}

// otherPrograms tells whether the BPF programs of a commit are not those of the working tree.
func otherPrograms(t *testing.T) func(string) (bool, error) {
	return func(commit string) (bool, error) {
		_, err := git(t, "diff", "--quiet", commit, "--", objectFiles)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 1 {
			return true, nil
		}
		return false, err
	}
}

// comment is one of C, or a space.
var comment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|\s+`)

// otherEntries tells whether the file that says what entries of tables are says something else in a commit than in the working tree.
func otherEntries(t *testing.T) func(string) (bool, error) {
	t.Helper()
	now, err := os.ReadFile(filepath.Join(sourceRoot, layoutSource))
	if err != nil {
		t.Fatal(err)
	}
	return func(commit string) (bool, error) {
		then, err := git(t, "show", commit+":"+layoutSource)
		return comment.ReplaceAllString(then, "") != comment.ReplaceAllString(string(now), ""), err
	}
}

// ofCommits are the builds of this run, by commit.
var ofCommits = map[string]programs{}

// buildCommit builds both programs of a commit, once for each run. Tests with it run one after the other.
func buildCommit(t *testing.T, commit string) programs {
	t.Helper()
	if p, ok := ofCommits[commit]; ok {
		return p
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no Go to build the version before with")
	}
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
	if said, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", sources).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v: %s", err, said)
	}
	type result struct {
		netlab.Programs
		error
	}
	begin, built := time.Now(), make(chan result, 1)
	go func() {
		p, err := netlab.BuildSources(sources, buildDir, "e2e-"+commit[:12])
		built <- result{p, err}
	}()
	for {
		select {
		case r := <-built:
			if r.error != nil {
				t.Fatal(r.error)
			}
			t.Logf("built in %s", time.Since(begin).Round(time.Second))
			ofCommits[commit] = programs{r.Beeline}
			return ofCommits[commit]
		case <-time.After(30 * time.Second):
			t.Logf("go build goes on since %s", time.Since(begin).Round(time.Second))
		}
	}
}
