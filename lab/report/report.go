// Package report renders a bench run for people: a table for the terminal, Markdown for a README and one
// self-contained HTML page with charts. It measures and decides nothing: every figure comes from
// results.json, and what is derived here (percentiles of merged histograms, CPU time per unit of work,
// ratios to another baseline) is derived from the samples in that file.
package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/result"
)

// FileName is the HTML report's name in a results directory.
const FileName = "report.html"

// Write renders run as HTML into dir/report.html. The file appears whole or not at all.
func Write(dir string, run *result.Run) error {
	var page bytes.Buffer
	if err := HTML(&page, run); err != nil {
		return err
	}
	return writeByRename(filepath.Join(dir, FileName), page.Bytes())
}

func writeByRename(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return fmt.Errorf("create report: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(content); err != nil {
		f.Close()
		return fmt.Errorf("write report: %w", err)
	}
	if err := f.Chmod(0o644); err != nil {
		f.Close()
		return fmt.Errorf("set mode of report: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close report: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("move report into place: %w", err)
	}
	return nil
}
