package report

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// The names of the HTML pages in a results directory.
const (
	FileName        = "report.html"
	CompareFileName = "compare.html"
)

//go:embed page/page.gohtml page/method.gohtml
var pages embed.FS

//go:embed page/style.css
var style template.CSS

//go:embed page/script.js
var script template.JS

// method has what the page says about the method and how to repeat the run.
type method struct {
	Cluster *result.Cluster
	Seed    uint64
	Command string
}

func newMethod(run *result.Run) *method {
	return &method{run.Cluster, run.Seed, commandText(run.Command)}
}

// HTML renders the document as one page that needs no network, no fonts, and no script to be readable.
func (d *Document) HTML(w io.Writer) error {
	t, err := template.New("page.gohtml").Funcs(template.FuncMap{
		"html": func(t *Table) bool { return t.on(OnHTML) },
		"bar": func(ratio float64) template.CSS {
			return template.CSS(fmt.Sprintf("width:%.1f%%", min(max(ratio, 0), 1.5)/1.5*100))
		},
		"class": func(column *Column, c Cell) string {
			class := map[bool]string{false: "num"}[column.Left]
			switch {
			case c.Wrong:
				class += " wrong"
			case c.Missing:
				class += " missing"
			}
			return strings.TrimSpace(class)
		},
		"span": func(t *Table) int { return len(t.Head()) - 1 },
	}).ParseFS(pages, "page/*.gohtml")
	if err != nil {
		return fmt.Errorf("parse page: %w", err)
	}
	page := struct {
		*Document
		Method *method
		Style  template.CSS
		Script template.JS
	}{d, d.method, style, script}
	if err := t.Execute(w, page); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	return nil
}

// WriteFile renders the document as HTML into a file. The file appears whole or not at all.
func (d *Document) WriteFile(path string) error {
	var page bytes.Buffer
	if err := d.HTML(&page); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return fmt.Errorf("create report: %w", err)
	}
	defer os.Remove(f.Name()) // without effect after the rename
	_, err = f.Write(page.Bytes())
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("rename report: %w", err)
	}
	return nil
}
