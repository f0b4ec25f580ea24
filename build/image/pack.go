package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nameAnnotation holds the full name of an image in an OCI layout for containerd. The standard's own annotation is the tag for some
// programs and the full name for others.
const nameAnnotation = "io.containerd.image.name"

// epoch is the time of everything in an image.
var epoch = time.Unix(0, 0).UTC()

// pack writes the archive, or leaves an existing one untouched if it fails.
func pack(o options) error {
	// Without a registry's host, a container runtime would assume a public registry. Reject such names here.
	ref, err := name.NewTag(o.name, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("-name: %w", err)
	}
	content, err := collect(o.sources)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(o.out), ".image-")
	if err != nil {
		return fmt.Errorf("make working directory: %w", err)
	}
	defer os.RemoveAll(work)
	layer, err := makeLayer(filepath.Join(work, "layer.tar"), content, o)
	if err != nil {
		return fmt.Errorf("make layer: %w", err)
	}
	img, err := makeImage(layer, o)
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	dir := filepath.Join(work, "layout")
	if err := writeLayout(dir, img, ref); err != nil {
		return fmt.Errorf("write image layout: %w", err)
	}
	files, err := collect([]source{{from: dir, to: "/"}})
	if err != nil {
		return err
	}
	archive := filepath.Join(work, "archive.tar")
	if err := writeTar(archive, files); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return os.Rename(archive, o.out)
}

// makeLayer writes the content to a file and makes it a layer. Without -gzip the layer is a gzip stream that is not compressed.
func makeLayer(file string, content tree, o options) (v1.Layer, error) {
	if err := writeTar(file, content); err != nil {
		return nil, err
	}
	level := gzip.NoCompression
	if o.gzip {
		level = gzip.DefaultCompression
	}
	return tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(level), tarball.WithCompressedCaching)
}

// makeImage puts the layer on an empty base.
func makeImage(layer v1.Layer, o options) (v1.Image, error) {
	created := v1.Time{Time: epoch}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "beeline build/image"}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = created
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = o.config
	return mutate.ConfigFile(img, config)
}

// writeLayout writes an OCI image layout (opencontainers/image-spec, image-layout.md), and the manifest.json of `docker save` beside it,
// which refers to the same blobs.
func writeLayout(dir string, img v1.Image, ref name.Tag) error {
	index, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	err = index.AppendImage(img, layout.WithPlatform(v1.Platform{OS: config.OS, Architecture: config.Architecture}),
		layout.WithAnnotations(map[string]string{nameAnnotation: ref.Name(), "org.opencontainers.image.ref.name": ref.TagStr()}))
	if err != nil {
		return err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	load := tarball.Descriptor{Config: blob(manifest.Config.Digest), RepoTags: []string{ref.Name()}}
	for _, l := range manifest.Layers {
		load.Layers = append(load.Layers, blob(l.Digest))
	}
	text, err := json.Marshal(tarball.Manifest{load})
	if err != nil {
		return err
	}
	return index.WriteFile("manifest.json", text, 0o644)
}

func blob(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// writeTar writes the tree to a file, sorted by name.
func writeTar(file string, t tree) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	for _, name := range t.names() {
		if err := writeEntry(w, name, t[name]); err != nil {
			return fmt.Errorf("pack /%s: %w", name, err)
		}
	}
	return w.Close()
}

// writeEntry writes what is the same on every machine: type, mode, size, link target and content.
func writeEntry(w *tar.Writer, name string, e entry) error {
	header := &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: epoch}
	if e.info != nil {
		link, err := e.link()
		if err != nil {
			return err
		}
		of, err := tar.FileInfoHeader(e.info, link)
		if err != nil {
			return err
		}
		header.Typeflag, header.Mode, header.Size, header.Linkname = of.Typeflag, of.Mode, of.Size, of.Linkname
	}
	if e.isDir() {
		header.Name += "/"
	}
	if err := w.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(e.from)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
