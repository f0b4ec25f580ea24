package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"

	"github.com/beeline-cni/beeline/lab/result"
)

//go:embed page
var pages embed.FS

// HTML renders run as one page that needs nothing else: no network, no fonts, no script to be readable.
func HTML(w io.Writer, run *result.Run) error {
	t, err := template.ParseFS(pages, "page/*.gohtml")
	if err != nil {
		return fmt.Errorf("parse page: %w", err)
	}
	if err := t.ExecuteTemplate(w, "page.gohtml", newPage(run)); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	return nil
}
