// Package report renders a bench run, or the comparison of two, for people: as Markdown for a terminal or a README, and as
// one self-contained HTML page with charts. All show the same tables (Document), which are built once.
package report

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/lab/result"
)

// ErrSchema is returned by Load for a result file that this version cannot read.
var ErrSchema = errors.New("unknown schema")

// Load reads dir/results.json. For a file of another version the error wraps ErrSchema.
func Load(dir string) (*result.Run, error) {
	path := filepath.Join(dir, result.FileName)
	// The schema first: another one's fields may not fit.
	var head struct{ Schema int }
	if err := file.ReadJSON(path, &head); err != nil {
		return nil, err
	}
	if head.Schema == 0 { // no version writes it
		return nil, fmt.Errorf("%s: not a result of beeline-lab bench", path)
	}
	if head.Schema != result.SchemaVersion {
		return nil, fmt.Errorf("%s: %w: file has schema %d, this version reads %d", path, ErrSchema, head.Schema, result.SchemaVersion)
	}
	run := new(result.Run)
	return run, file.ReadJSON(path, run)
}
