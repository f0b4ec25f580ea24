package report

import (
	"embed"
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/beeline-cni/beeline/lab/result"
)

//go:embed page/*.gohtml
var pages embed.FS

//go:embed page/style.css
var style string

//go:embed page/script.js
var script string

// HTML renders run as one page that needs nothing else: no network, no fonts, no script to be readable.
func HTML(w io.Writer, run *result.Run) error {
	t, err := template.ParseFS(pages, "page/*.gohtml")
	if err != nil {
		return fmt.Errorf("parse page: %w", err)
	}
	p := newPage(run)
	p.Style, p.Script = template.CSS(style), template.JS(script)
	if err := t.ExecuteTemplate(w, "page.gohtml", p); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	return nil
}
