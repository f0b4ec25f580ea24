package report

import "github.com/beeline-cni/beeline/lab/result"

// page is what the template shows.
type page struct {
	Title string
}

func newPage(run *result.Run) *page {
	return &page{Title: "Beeline bench"}
}
