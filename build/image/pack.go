package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// pack makes the archive. One that is there is replaced, whole or not at all.
func pack(o options) error {
	// The runtime would give a name without a registry's host a public registry's: one that is surprised by where it
	// looks for the image is better surprised here.
	ref, err := name.NewTag(o.name, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("-name: %w", err)
	}
	t, err := collect(o.sources)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(o.out), ".image-")
	if err != nil {
		return fmt.Errorf("make working directory: %w", err)
	}
	defer os.RemoveAll(work)
	l, err := writeLayer(filepath.Join(work, "layer"), t, o.epoch, o.gzip)
	if err != nil {
		return fmt.Errorf("write layer: %w", err)
	}
	img, err := image(l, o.config, o.epoch)
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	whole := filepath.Join(work, "archive")
	if err := writeArchive(whole, img, ref, o.epoch); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return os.Rename(whole, o.out)
}

// image is the one layer on nothing.
func image(l v1.Layer, c imageConfig, created time.Time) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(img, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "beeline build/image"}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: created}
	config.OS, config.Architecture = "linux", c.arch
	config.Config = v1.Config{
		Entrypoint: c.entrypoint,
		Cmd:        c.cmd,
		Env:        c.env,
		User:       c.user,
		WorkingDir: c.workdir,
		Labels:     c.labels,
	}
	return mutate.ConfigFile(img, config)
}
