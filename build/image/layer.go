package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is a layer that lies in a file. It implements v1.Layer.
type layer struct {
	file      string
	mediaType types.MediaType
	// digest and size (bytes) of the file, and the digest of what it is uncompressed.
	digest, diffID v1.Hash
	size           int64
}

// writeLayer packs the tree into a file.
func writeLayer(file string, t tree, epoch time.Time, compress bool) (l *layer, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	digest, diffID := sha256.New(), sha256.New()
	out := io.MultiWriter(f, digest)
	l = &layer{file: file, mediaType: types.OCIUncompressedLayer}
	if compress {
		l.mediaType = types.OCILayer
		zipped := gzip.NewWriter(out)
		if err := writeTar(io.MultiWriter(zipped, diffID), t, epoch); err != nil {
			return nil, err
		}
		if err := zipped.Close(); err != nil {
			return nil, err
		}
	} else if err := writeTar(io.MultiWriter(out, diffID), t, epoch); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	l.digest, l.diffID, l.size = sum(digest), sum(diffID), info.Size()
	return l, nil
}

func sum(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

// writeTar writes the tree, sorted by name.
func writeTar(w io.Writer, t tree, epoch time.Time) error {
	archive := tar.NewWriter(w)
	for _, name := range t.names() {
		if err := writeEntry(archive, name, t[name], epoch); err != nil {
			return fmt.Errorf("pack /%s: %w", name, err)
		}
	}
	return archive.Close()
}

func writeEntry(archive *tar.Writer, name string, e entry, epoch time.Time) error {
	header := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
	if e.info != nil {
		link, err := e.link()
		if err != nil {
			return err
		}
		// Only what is the same on every machine: type, mode, size and target.
		found, err := tar.FileInfoHeader(e.info, link)
		if err != nil {
			return err
		}
		header = &tar.Header{Typeflag: found.Typeflag, Name: name, Mode: found.Mode, Size: found.Size, Linkname: found.Linkname}
		if e.isDir() {
			header.Name += "/"
		}
	}
	header.ModTime = epoch
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := os.Open(e.from)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(archive, f)
	return err
}

// Digest is that of the file.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID is the digest of the uncompressed layer.
func (l *layer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Compressed reads the file; it is compressed if its media type says so.
func (l *layer) Compressed() (io.ReadCloser, error) { return os.Open(l.file) }

// Uncompressed is not needed to make an image.
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	return nil, errors.New("a layer is written and not read")
}

// Size is that of the file in bytes.
func (l *layer) Size() (int64, error) { return l.size, nil }

// MediaType is one of the OCI image specification.
func (l *layer) MediaType() (types.MediaType, error) { return l.mediaType, nil }
