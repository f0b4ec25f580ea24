package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nameAnnotation is where containerd looks for the whole name of an image in an OCI layout; the standard's own annotation
// is the tag for some programs and the whole name for others.
const nameAnnotation = "io.containerd.image.name"

// loadManifest is one element of manifest.json, which `docker load` reads.
type loadManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// writeArchive writes an OCI image layout (opencontainers/image-spec, image-layout.md) in a tar archive,
// with the manifest.json of `docker save` beside it, which points to the same blobs.
func writeArchive(file string, img v1.Image, ref name.Tag, epoch time.Time) (err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	rawManifest, err := img.RawManifest()
	if err != nil {
		return err
	}
	rawConfig, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	index, load, err := indexes(img, manifest, ref)
	if err != nil {
		return err
	}
	a := archive{tar: tar.NewWriter(f), epoch: epoch}
	a.json("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"})
	a.json("index.json", index)
	a.json("manifest.json", load)
	a.bytes(blob(index.Manifests[0].Digest), rawManifest)
	a.bytes(blob(manifest.Config.Digest), rawConfig)
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for i, l := range layers {
		a.layer(blob(manifest.Layers[i].Digest), l, manifest.Layers[i].Size)
	}
	return a.close()
}

// indexes are the two tables of contents.
func indexes(img v1.Image, manifest *v1.Manifest, ref name.Tag) (v1.IndexManifest, []loadManifest, error) {
	digest, err := img.Digest()
	if err != nil {
		return v1.IndexManifest{}, nil, err
	}
	size, err := img.Size()
	if err != nil {
		return v1.IndexManifest{}, nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return v1.IndexManifest{}, nil, err
	}
	index := v1.IndexManifest{
		SchemaVersion: 2,
		MediaType:     types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType:   manifest.MediaType,
			Digest:      digest,
			Size:        size,
			Platform:    &v1.Platform{OS: config.OS, Architecture: config.Architecture},
			Annotations: map[string]string{nameAnnotation: ref.Name(), "org.opencontainers.image.ref.name": ref.TagStr()},
		}},
	}
	load := loadManifest{Config: blob(manifest.Config.Digest), RepoTags: []string{ref.Name()}}
	for _, l := range manifest.Layers {
		load.Layers = append(load.Layers, blob(l.Digest))
	}
	return index, []loadManifest{load}, nil
}

func blob(h v1.Hash) string {
	return path.Join("blobs", h.Algorithm, h.Hex)
}

// archive writes members one after the other and keeps the first error.
type archive struct {
	tar   *tar.Writer
	epoch time.Time
	err   error
}

func (a *archive) header(name string, size int64) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: a.epoch})
	}
}

func (a *archive) bytes(name string, content []byte) {
	a.header(name, int64(len(content)))
	if a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

func (a *archive) json(name string, v any) {
	content, err := json.Marshal(v)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	a.bytes(name, content)
}

func (a *archive) layer(name string, l v1.Layer, size int64) {
	a.header(name, size)
	if a.err != nil {
		return
	}
	content, err := l.Compressed()
	if err != nil {
		a.err = err
		return
	}
	defer content.Close()
	_, a.err = io.Copy(a.tar, content)
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.tar.Close()
}
