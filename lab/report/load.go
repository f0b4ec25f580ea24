// Package report renders a bench run, or the comparison of two, for people: as text for a terminal, as Markdown for a
// README, and as one self-contained HTML page with charts. All three show the same tables (Document), which are built once.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/result"
)

// ErrSchema is returned by Load for a result file that this version cannot read.
var ErrSchema = errors.New("unknown schema")

// Load reads dir/results.json; dir may also name the file itself. For a file of a newer version the error wraps ErrSchema.
func Load(dir string) (*result.Run, error) {
	path := dir
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("results directory %s does not exist", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	if info.IsDir() {
		path = filepath.Join(dir, result.FileName)
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no %s in %s: was a bench written there?", result.FileName, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	run, err := decode(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return run, nil
}

// decode checks the schema number first, so that the error of a newer file names its version and not a changed field.
func decode(content []byte) (*result.Run, error) {
	var head struct {
		Schema *int `json:"schema"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return nil, describe(content, err)
	}
	switch {
	case head.Schema == nil:
		return nil, errors.New("not a result file: field schema is missing")
	case *head.Schema > result.SchemaVersion:
		return nil, fmt.Errorf("%w: file has schema %d, this version reads up to %d; use a newer beeline",
			ErrSchema, *head.Schema, result.SchemaVersion)
	case *head.Schema < 1:
		return nil, fmt.Errorf("%w: %d", ErrSchema, *head.Schema)
	}
	run := new(result.Run)
	if err := json.Unmarshal(content, run); err != nil {
		return nil, describe(content, err)
	}
	return run, nil
}

// describe names the place where a file is broken.
func describe(content []byte, err error) error {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case len(content) == 0:
		return errors.New("file is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("file is truncated")
	case errors.As(err, &syntax):
		if syntax.Offset >= int64(len(content)) {
			return fmt.Errorf("file is truncated after %d bytes", len(content))
		}
		return fmt.Errorf("line %d: %w", line(content, syntax.Offset), err)
	case errors.As(err, &mismatch):
		return fmt.Errorf("line %d: field %s: unexpected %s", line(content, mismatch.Offset), mismatch.Field, mismatch.Value)
	}
	return err
}

// Directory is the results directory of an argument of Load.
func Directory(path string) string {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return filepath.Dir(path)
	}
	return path
}

func line(content []byte, offset int64) int {
	n := 1
	for _, b := range content[:min(offset, int64(len(content)))] {
		if b == '\n' {
			n++
		}
	}
	return n
}
