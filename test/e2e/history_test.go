package e2e

import (
	"bytes"
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
	layoutSource = "bpf/types.h" // what entries of tables are
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
		testenv.Missing(t, fmt.Sprintf("the sources are not in a git repository, so there is no earlier version to build: %v", err))
	}
}

// comment is one of C, or a space.
var comment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|\s+`)

// ancestorOfOtherEntries is the newest commit among HEAD and its ancestors in which the file that says what entries of tables are says something else than
// in the working tree.
func ancestorOfOtherEntries(t *testing.T) string {
	t.Helper()
	now, err := os.ReadFile(filepath.Join(sourceRoot, layoutSource))
	if err != nil {
		t.Fatal(err)
	}
	list, err := git(t, "log", "--format=%P", "HEAD", "--", layoutSource)
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
		if _, err := git(t, "cat-file", "-e", first+":cmd/beeline-agent/main.go"); err != nil {
			break // versions before have other programs
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
	testenv.Missing(t, "the git history has no commit in which "+layoutSource+" differs from the working tree; a full clone has one (git fetch --unshallow)")
	return ""
}

// buildCommit builds both programs of a commit.
func buildCommit(t *testing.T, commit string) programs {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		testenv.Missing(t, "no Go to build the earlier version with")
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
			return r.Programs
		case <-time.After(30 * time.Second):
			t.Logf("go build goes on since %s", time.Since(begin).Round(time.Second))
		}
	}
}
