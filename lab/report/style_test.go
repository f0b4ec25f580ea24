package report

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/beeline-cni/beeline/lab/report/chart"
)

var (
	themes   = regexp.MustCompile(`(?s):root \{(.*?)\}`)
	colours  = regexp.MustCompile(`--([a-z0-9-]+): #([0-9a-f]{3,6});`)
	textures = regexp.MustCompile(`class="texture" d="([^"]*)"`)
)

// styles are the colours of the page by theme. What a theme does not say is as in the light one.
func styles(t *testing.T) map[string]map[string]float64 {
	t.Helper()
	text, err := os.ReadFile("page/style.css")
	if err != nil {
		t.Fatal(err)
	}
	found := themes.FindAllStringSubmatch(string(text), -1)
	names := []string{"light", "dark", "paper"}
	if len(found) != len(names) {
		t.Fatalf("%d themes, want %d", len(found), len(names))
	}
	all := map[string]map[string]float64{}
	for i, theme := range found {
		all[names[i]] = map[string]float64{}
		for name, value := range all["light"] {
			all[names[i]][name] = value
		}
		for _, c := range colours.FindAllStringSubmatch(theme[1], -1) {
			all[names[i]][c[1]] = luminance(t, c[2])
		}
	}
	return all
}

// luminance is the relative luminance of a colour, as the Web Content Accessibility Guidelines define it.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = fmt.Sprintf("%[1]c%[1]c%[2]c%[2]c%[3]c%[3]c", hex[0], hex[1], hex[2])
	}
	total := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		total += weight * c
	}
	return total
}

// contrast is that of two colours, as the guidelines define it.
func contrast(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }

// Text and marks stand out in every theme as the guidelines want it: text by 4.5 to 1, what is drawn by 3 to 1.
func TestColoursStandOut(t *testing.T) {
	const text, drawn = 4.5, 3
	for theme, of := range styles(t) {
		for _, c := range []struct {
			front, behind string
			least         float64
		}{
			{"ink", "paper", text}, {"ink", "card", text}, {"soft", "paper", text}, {"soft", "card", text}, {"hot", "paper", text}, {"hot", "card", text},
			{"warn", "warn-bg", text}, {"in-dark", "f0", text}, {"in-light", "f1", text}, {"in-dark", "f2", text}, {"in-dark", "f3", text},
			{"in-dark", "f4", text}, {"in-dark", "f5", text},
			{"mark", "card", drawn}, {"hot", "card", drawn}, {"pub", "card", drawn}, {"soft", "card", drawn}, // soft is the outline of segments
		} {
			front, known := of[c.front]
			behind, there := of[c.behind]
			if !known || !there {
				t.Fatalf("%s: no colour %s or %s", theme, c.front, c.behind)
			}
			if got := contrast(front, behind); got < c.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want %.1f", theme, c.front, c.behind, got, c.least)
			}
		}
	}
}

// Any two segments differ by their texture or by how light they are, so also for who sees no difference of hue.
func TestSegmentsDifferWithoutHue(t *testing.T) {
	texture := func(i int) string {
		if found := textures.FindStringSubmatch(string(chart.FillSymbol(i))); found != nil {
			return found[1]
		}
		return ""
	}
	for theme, of := range styles(t) {
		for i := range chart.Fills {
			for j := range i {
				a, b := of[fmt.Sprintf("f%d", i)], of[fmt.Sprintf("f%d", j)]
				if texture(i) == texture(j) && contrast(a, b) < 1.8 {
					t.Errorf("%s: segments %d and %d look alike", theme, i, j)
				}
			}
		}
	}
}
