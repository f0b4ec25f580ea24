package report

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/result"
)

// CompareFileName is the name of the HTML comparison in a results directory.
const CompareFileName = "compare.html"

// comparePage is everything that the template shows, already worded and formatted.
type comparePage struct {
	Runs    []comparedRun
	Notes   []string
	Figures []comparedFigureView
	Nothing string
	Style   template.CSS
}

type comparedRun struct {
	Name  string
	Lines []string
}

type comparedFigureView struct {
	Title, Heading, Note string
	Rows                 []comparedRowView
}

type comparedRowView struct {
	Name, A, B                          string
	Quotient, Mark, Interval            string
	RatioA, RatioB                      string
	RatioQuotient, RatioMark, RatioSpan string
	Decided                             bool
}

// CompareHTML renders how run b differs from run a as one page that needs nothing else.
func CompareHTML(w io.Writer, a, b *result.Run) error {
	t, err := template.ParseFS(pages, "page/*.gohtml")
	if err != nil {
		return fmt.Errorf("parse page: %w", err)
	}
	if err := t.ExecuteTemplate(w, "compare.gohtml", newComparePage(a, b)); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	return nil
}

// WriteComparison renders the comparison into dir/compare.html. The file appears whole or not at all.
func WriteComparison(dir string, a, b *result.Run) error {
	var page bytes.Buffer
	if err := CompareHTML(&page, a, b); err != nil {
		return err
	}
	return writeByRename(filepath.Join(dir, CompareFileName), page.Bytes())
}

func newComparePage(a, b *result.Run) *comparePage {
	c := newComparison(a, b)
	p := &comparePage{
		Runs:  []comparedRun{{"A", provenance(a)}, {"B", provenance(b)}},
		Notes: c.notes, Style: template.CSS(style),
	}
	if len(c.figures) == 0 {
		p.Nothing = nothingInCommon
	}
	for _, f := range c.figures {
		view := comparedFigureView{f.Title, f.heading(), f.unitNote(), nil}
		for _, r := range f.rows {
			view.Rows = append(view.Rows, comparedRowView{
				Name: r.contender, A: r.a, B: r.b,
				Quotient: r.values.quotient(), Mark: r.values.mark(), Interval: interval(r.values.Low, r.values.High),
				RatioA: ratio(r.ratioA), RatioB: ratio(r.ratioB),
				RatioQuotient: r.ratios.quotient(), RatioMark: r.ratios.mark(), RatioSpan: interval(r.ratios.Low, r.ratios.High),
				Decided: r.ratios.N > 0 && r.ratios.mark() == "",
			})
		}
		p.Figures = append(p.Figures, view)
	}
	return p
}
