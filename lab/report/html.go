package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/beeline-cni/beeline/lab/file"
)

// The names of the HTML pages in a results directory.
const (
	FileName        = "report.html"
	CompareFileName = "compare.html"
)

//go:embed page
var pages embed.FS

var page = template.Must(template.New("page.gohtml").Funcs(template.FuncMap{
	"style":   func() (template.CSS, error) { return included[template.CSS]("style.css") },
	"script":  func() (template.JS, error) { return included[template.JS]("script.js") },
	"command": commandText,
	"class": func(t *Table, column int, c Cell) string {
		class := map[bool]string{true: "num "}[t.Numeric(column+1)] + c.Class
		return strings.TrimSpace(class)
	},
	"span": func(t *Table) int { return len(t.Columns) - 1 },
}).ParseFS(pages, "page/*.gohtml"))

// included is a file that the page contains as it is.
func included[T ~string](name string) (T, error) {
	content, err := pages.ReadFile("page/" + name)
	return T(content), err
}

// HTML renders the document as one page that needs no network, no fonts, and no script to be readable.
func (d *Document) HTML(w io.Writer) error {
	if err := page.Execute(w, d); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	return nil
}

// WriteFile renders the document as HTML into a file. The file appears whole or not at all.
func (d *Document) WriteFile(path string) error {
	var content bytes.Buffer
	if err := d.HTML(&content); err != nil {
		return err
	}
	if err := file.Replace(path, content.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
