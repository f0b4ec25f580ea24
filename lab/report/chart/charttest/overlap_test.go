package charttest

import (
	"strings"
	"testing"
)

func TestOverlaps(t *testing.T) {
	const head, tail = `<svg viewBox="0 0 100 50">`, `</svg>`
	text := func(x, y string) string {
		return `<text text-anchor="start" x="` + x + `" y="` + y + `">abc</text>`
	}
	for name, c := range map[string]struct {
		svg  string
		want string
	}{
		"apart":   {text("10", "20") + text("40", "20"), ""},
		"stacked": {text("10", "20") + text("10", "40"), ""},
		"overlap": {text("10", "20") + text("20", "25"), "overlap"},
		"leaves":  {text("90", "20"), "leaves the drawing"},
		"above":   {text("10", "5"), "leaves the drawing"},
	} {
		got, err := Overlaps(head + c.svg + tail)
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(got, "\n"); (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: got %q, want %q", name, all, c.want)
		}
	}
	if _, err := Overlaps("<svg>"); err == nil {
		t.Error("a drawing without viewBox passed")
	}
}
