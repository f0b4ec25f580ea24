package images

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Trees that are made here.
const (
	agnhostFiles = "agnhost-files"
	applets      = "applets"
	page         = "page"
	pauseProgram = "pause"
)

// file is one of a tree: content, or where a link leads to.
type file struct {
	content, link string
	mode          os.FileMode
}

//go:embed pause/main.go
var pauseSource string

var extras = map[string]map[string]file{
	agnhostFiles: {
		"agnhost-2":         {link: "agnhost"},
		"uploads":           {mode: os.ModeDir | 0o777},
		"tmp":               {mode: os.ModeDir | os.ModeSticky | 0o777},
		"root":              {mode: os.ModeDir | 0o700},
		"etc/passwd":        {content: "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n"},
		"etc/group":         {content: "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"},
		"etc/nsswitch.conf": {content: "hosts: files dns\n"},
		// GNU wget tries twenty times; the tests count on one.
		"etc/wgetrc":          {content: "tries = 1\n"},
		"usr/local/bin/iperf": {link: "/usr/bin/iperf"},
		"usr/bin/nc":          {link: "nc.openbsd"},
		"usr/bin/awk":         {link: "mawk"},
	},
	applets: {
		"tmp":        {mode: os.ModeDir | os.ModeSticky | 0o777},
		"root":       {mode: os.ModeDir | 0o700},
		"etc/passwd": {content: "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"},
		"etc/group":  {content: "root:x:0:\nnogroup:x:65534:\n"},
	},
	page: {"www/index.html": {content: "<!DOCTYPE html><title>Welcome to nginx!</title>\n"}},
	// The program is built into it.
	pauseProgram: {},
}

// extraTexts are the contents of trees, for recipes.
func extraTexts(names []string) []map[string]file {
	var texts []map[string]file
	for _, name := range names {
		texts = append(texts, extras[name])
	}
	return texts
}

// makeExtra makes a tree in dir. base is the tree of Debian packages of the same image.
func makeExtra(ctx context.Context, name, dir, base string) error {
	for path, f := range extras[name] {
		if err := f.write(filepath.Join(dir, path)); err != nil {
			return err
		}
	}
	switch name {
	case applets:
		return linkApplets(ctx, dir, base)
	case pauseProgram:
		return run(ctx, "", "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
			"-o", filepath.Join(dir, "pause"), "./test/kubernetes/images/pause")
	}
	return nil
}

func (f file) write(path string) error {
	if f.mode.IsDir() {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		return os.Chmod(path, f.mode)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if f.link != "" {
		return os.Symlink(f.link, path)
	}
	return os.WriteFile(path, []byte(f.content), 0o644)
}

// linkApplets gives busybox the names of its programs, as its own --install would: it is asked for them
// through the loader of its own libraries.
func linkApplets(ctx context.Context, dir, base string) error {
	loader := filepath.Join(base, "lib64/ld-linux-x86-64.so.2")
	libraries := filepath.Join(base, "lib/x86_64-linux-gnu")
	out, err := exec.CommandContext(ctx, loader, "--library-path", libraries, filepath.Join(base, "bin/busybox"), "--list").Output()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755); err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(out)) {
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("/bin/busybox", filepath.Join(dir, "usr/bin", name)); err != nil {
			return err
		}
	}
	return nil
}
