package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const ref = "localhost/beeline:test"

// sources makes a program and a directory with one of each kind.
func sources(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // past the umask
			t.Fatal(err)
		}
	}
	write("program", "#!", 0o755)
	write("tree/etc/secret", "s", 0o600)
	write("tree/bin/su", "#!", 0o755|os.ModeSetuid)
	if err := os.Symlink("su", filepath.Join(dir, "tree/bin/sudo")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tree/tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "tree/tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return []string{filepath.Join(dir, "program") + "=/usr/bin/program", filepath.Join(dir, "tree") + "=/"}
}

// build runs the command and returns the archive's path.
func build(t *testing.T, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	var stderr bytes.Buffer
	if code := run(append([]string{"-o", file, "-name", ref}, args...), &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	return file
}

func TestSameInputGivesSameBytes(t *testing.T) {
	for _, flags := range [][]string{nil, {"-gzip"}} {
		var archives [][]byte
		for range 2 {
			// New directories: other inodes, other times, another order on disk.
			content, err := os.ReadFile(build(t, append(flags, sources(t)...)...))
			if err != nil {
				t.Fatal(err)
			}
			archives = append(archives, content)
		}
		if !bytes.Equal(archives[0], archives[1]) {
			t.Errorf("%v: two builds differ", flags)
		}
	}
}

func TestLayerKeepsModesAndLinks(t *testing.T) {
	img := loaded(t, build(t, append([]string{"-gzip"}, sources(t)...)...))
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	type member struct {
		Name string
		Mode int64
		Link string
	}
	var got []member
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %d:%d %q and is of %v", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
		got = append(got, member{h.Name, h.Mode, h.Linkname})
	}
	want := []member{
		{"bin/", 0o755, ""}, {"bin/su", 0o4755, ""}, {"bin/sudo", 0o777, "su"},
		{"etc/", 0o755, ""}, {"etc/secret", 0o600, ""}, {"tmp/", 0o1777, ""},
		{"usr/", 0o755, ""}, {"usr/bin/", 0o755, ""}, {"usr/bin/program", 0o755, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

// The two tables of contents of one archive lead to the same image with the same name.
func TestArchiveIsBothFormats(t *testing.T) {
	config := []string{"-entrypoint", "/bin/su -x", "-cmd", "a b", "-env", "A=1", "-env", "B=2=3", "-user", "1000", "-label", "x.y=z=1"}
	for _, flags := range [][]string{nil, {"-gzip"}} {
		file := build(t, append(append(flags, config...), sources(t)...)...)
		docker, oci := loaded(t, file), imported(t, file)
		for format, img := range map[string]v1.Image{"docker": docker, "oci": oci} {
			if err := validate.Image(img); err != nil {
				t.Errorf("%v: %s: %v", flags, format, err)
			}
			got, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			want := v1.Config{
				Entrypoint: []string{"/bin/su", "-x"}, Cmd: []string{"a", "b"}, Env: []string{"A=1", "B=2=3"},
				User: "1000", Labels: map[string]string{"x.y": "z=1"},
			}
			if diff := cmp.Diff(want, got.Config); diff != "" {
				t.Errorf("%v: %s: config (-want +got):\n%s", flags, format, diff)
			}
			if got.OS != "linux" || got.Architecture != runtime.GOARCH {
				t.Errorf("%v: %s: for %s/%s", flags, format, got.OS, got.Architecture)
			}
		}
	}
}

// loaded reads the archive as `docker load` does.
func loaded(t *testing.T, file string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// imported reads the archive as an OCI image layout and checks the name that containerd gives it.
func imported(t *testing.T, file string) v1.Image {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%d manifests, %v", len(index.Manifests), err)
	}
	if got := index.Manifests[0].Annotations[nameAnnotation]; got != ref {
		t.Errorf("containerd calls it %q", got)
	}
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	img, err := path.Image(index.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.tar")
	tests := map[string][]string{
		"are needed":               {"-o", out, "-name", ref},
		"absolute DEST":            {"-o", out, "-name", ref, file + "=bin"},
		"-name":                    {"-o", out, "-name", "beeline", file + "=/bin/x"},
		"comes from both":          {"-o", out, "-name", ref, file + "=/bin/x", file + "=/bin/x"},
		"no such file":             {"-o", out, "-name", ref, file + "2=/bin/x"},
		"is not a directory":       {"-o", out, "-name", ref, file + "=/"},
		"neither a file":           {"-o", out, "-name", ref, "/dev/null=/dev/null"},
		"not KEY=VALUE":            {"-o", out, "-name", ref, "-env", "A", file + "=/bin/x"},
		"make working directory: ": {"-o", filepath.Join(dir, "none/out.tar"), "-name", ref, file + "=/bin/x"},
	}
	for message, args := range tests {
		var stderr bytes.Buffer
		if code := run(args, &stderr); code != 1 || !strings.Contains(stderr.String(), message) {
			t.Errorf("%q: exit code %d: %s", message, code, &stderr)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(left, func(e os.DirEntry) bool { return e.Name() != "file" }); i >= 0 {
		t.Errorf("left behind: %s", left[i].Name())
	}
}
