package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// root is the directory of the repository.
const root = "../.."

// TestImage makes the image twice, from two copies of the sources: the same bytes, small, with the expected content.
func TestImage(t *testing.T) {
	for _, program := range []string{"make", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("no %s", program)
		}
	}
	sources := t.TempDir()
	copySources(t, sources)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	output(t, "cp", "-a", sources, elsewhere)
	var archives [][]byte
	for _, dir := range []string{sources, elsewhere} {
		output(t, "make", "-C", dir, "image", "VERSION=test")
		archive, err := os.ReadFile(filepath.Join(dir, "bin/beeline-image.tar"))
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same sources in two directories give two images")
	}
	const limit = 60 << 20
	if size := len(archives[0]); size > limit {
		t.Errorf("the archive has %d bytes, more than %d", size, limit)
	}
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archives[0])), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		Entrypoint: []string{"beeline-agent"}, Env: []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "beeline", "org.opencontainers.image.version": "test",
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/beeline-cni/beeline",
		},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	inDockerfile(t, want)
	content := []string{"usr/", "usr/bin/", "usr/bin/beeline", "usr/bin/beeline-agent", "usr/bin/beeline-cni", "usr/bin/beeline-portmap", "var/", "var/run -> /run"}
	if diff := cmp.Diff(content, files(t, img)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

// output runs a program in the sources' directory and gives what it prints.
func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", name, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// copySources copies what is or could be committed, as it is now.
func copySources(t *testing.T, to string) {
	t.Helper()
	args := []string{"-a", "--parents", "-t", to}
	for _, name := range strings.Split(string(output(t, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && !info.IsDir() { // neither deleted nor the end of the list
			args = append(args, name)
		}
	}
	output(t, "cp", args...)
}

// inDockerfile checks that the Dockerfile asks for the same programs and configuration.
func inDockerfile(t *testing.T, c v1.Config) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, final, _ := strings.Cut(string(text), "\nFROM scratch\n")
	lines := []string{
		"COPY deploy/rootfs/ /\n", "COPY --from=build /src/bin/beeline /src/bin/beeline-agent /src/bin/beeline-cni /src/bin/beeline-portmap /usr/bin/\n",
		"ENV " + c.Env[0] + "\n", `ENTRYPOINT ["` + c.Entrypoint[0] + `"]`,
	}
	for key, value := range c.Labels {
		if key == "org.opencontainers.image.version" {
			value = "${VERSION}"
		}
		lines = append(lines, key+"="+value)
	}
	for _, line := range lines {
		if !strings.Contains(final, line) {
			t.Errorf("the Dockerfile's image lacks %q", line)
		}
	}
}

// files lists what is in the image.
func files(t *testing.T, img v1.Image) (names []string) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		name := h.Name
		if h.Linkname != "" {
			name += " -> " + h.Linkname
		}
		names = append(names, name)
	}
}
