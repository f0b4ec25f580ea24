package kubebuild

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Source returns the directory with the sources of Kubernetes, in Go's module cache.
func Source(ctx context.Context, kubernetes string) (string, error) {
	return download(ctx, kubernetesModule(kubernetes))
}

// download fetches the module and gives the directory that it is unpacked in.
func download(ctx context.Context, m module) (string, error) {
	out, err := goCommand(ctx, "", "mod", "download", "-json", m.path+"@"+m.version)
	if err != nil {
		return "", err
	}
	var info struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		return "", fmt.Errorf("read what go mod download says: %w", err)
	}
	return info.Dir, nil
}

// makeModule makes a module in dir that requires m, with the versions of everything that m's authors built with.
// A program's dependencies can be replaced only by the module that is built, so m's replacements are copied.
func makeModule(ctx context.Context, dir string, m module) error {
	source, err := download(ctx, m)
	if err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	if m.main != "" {
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(m.main), 0o644); err != nil {
			return err
		}
	}
	out, err := goCommand(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return err
	}
	edits, err := moduleEdits(m, out)
	if err != nil {
		return err
	}
	_, err = goCommand(ctx, dir, append([]string{"mod", "edit"}, edits...)...)
	return err
}

// moduleEdits are the flags of `go mod edit` that turn m's go.mod, given as -json shows it, into one that requires
// m. Replacements by directories of m's repository become the published modules: for Kubernetes those of the
// same release, elsewhere the version that is required anyway.
func moduleEdits(m module, gomod string) ([]string, error) {
	type moduleVersion struct{ Path, Version string }
	var file struct {
		Replace []struct{ Old, New moduleVersion }
	}
	if err := json.Unmarshal([]byte(gomod), &file); err != nil {
		return nil, fmt.Errorf("read what go mod edit says: %w", err)
	}
	edits := []string{"-module=beeline-kubernetes-build", "-require=" + m.path + "@" + m.version}
	for _, r := range file.Replace {
		if !strings.HasPrefix(r.New.Path, ".") {
			continue
		}
		old := r.Old.Path
		if r.Old.Version != "" {
			old += "@" + r.Old.Version
		}
		if m.staging != "" {
			edits = append(edits, fmt.Sprintf("-replace=%s=%s@%s", old, r.Old.Path, m.staging))
		} else {
			edits = append(edits, "-dropreplace="+old)
		}
	}
	return edits, nil
}

// goCommand runs the go command; its error says what the command said. The caller's GOFLAGS may be for another
// kind of module.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args[:min(2, len(args))], " "), err, lastLines(stderr.String(), 20))
	}
	return stdout.String(), nil
}

// lastLines are the last n lines of text that are no notices of downloads.
func lastLines(text string, n int) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "go: downloading ") {
			kept = append(kept, line)
		}
	}
	return strings.TrimSpace(strings.Join(kept[max(0, len(kept)-n):], ""))
}
