package report

import (
	"fmt"
	"slices"
	"strings"
)

// overviewBlock is a matrix of ratios: contenders down, figures across.
type overviewBlock struct {
	title string
	head  [][]string
	rows  []overviewRow
	// figures and contenders are what the columns and rows stand for.
	figures []figure
}

type overviewRow struct {
	name  string
	cells []string
	note  string // in place of cells: why there are none
}

// overviewColumns is how many figures fit beside each other in a terminal.
const overviewColumns = 8

// overviewBlocks splits the figures by placement and path, and again where there are too many of them.
func overviewBlocks(v *view) []overviewBlock {
	var blocks []overviewBlock
	for figures := range slices.Values(groupFigures(v.figures)) {
		for part := range slices.Chunk(figures, overviewColumns) {
			blocks = append(blocks, v.overviewBlock(part))
		}
	}
	return blocks
}

// groupFigures splits figures into runs of the same placement and path.
func groupFigures(figures []figure) [][]figure {
	var groups [][]figure
	for i, f := range figures {
		if i == 0 || f.path != figures[i-1].path || f.placement != figures[i-1].placement {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], f)
	}
	return groups
}

func (v *view) overviewBlock(figures []figure) overviewBlock {
	b := overviewBlock{figures: figures}
	b.title = fmt.Sprintf("Ratio to node · %s · %s", figures[0].path, figures[0].placement)
	var heads [][]string
	height := 0
	for _, f := range figures {
		lines := headLines(f)
		heads = append(heads, lines)
		height = max(height, len(lines))
	}
	for i := range height {
		var line []string
		for _, h := range heads {
			// Aligned at the bottom: the last line is the one next to the figures.
			if j := i - (height - len(h)); j >= 0 {
				line = append(line, h[j])
			} else {
				line = append(line, "")
			}
		}
		b.head = append(b.head, line)
	}
	for _, c := range v.contenders() {
		if c.Name == again {
			continue
		}
		r, any := overviewRow{name: c.Name}, false
		for _, f := range figures {
			cell, ok := f.cell(c.Name)
			any = any || ok
			r.cells = append(r.cells, cell)
		}
		if !any {
			if c.Unsupported == "" {
				continue
			}
			r.note = c.Unsupported
		}
		b.rows = append(b.rows, r)
	}
	return b
}

// headLines makes a narrow column head of a workload's name: tcp / stream / 128k.
func headLines(f figure) []string {
	lines := strings.Split(f.workload, "_")
	if f.procs > 1 {
		lines = append(lines, fmt.Sprintf("×%d", f.procs))
	}
	if f.Better == "lower" {
		lines[len(lines)-1] += " ↓"
	}
	for i := range lines {
		lines[i] = clip(lines[i], cellWidth-1)
	}
	return lines
}

// cell is the contender's ratio in a figure; the blank behind a decided one keeps the columns straight.
func (f figure) cell(contender string) (text string, ok bool) {
	for _, r := range f.rows {
		if r.contender != contender {
			continue
		}
		switch {
		case r.summary == nil && r.failed > 0:
			return "failed ", true
		case r.summary == nil:
			return dash + " ", false
		case contender == baseline:
			return "1 ", true
		case undecided(r.summary):
			return ratio(r.summary.Ratio) + "~", true
		}
		return ratio(r.summary.Ratio) + " ", true
	}
	return dash + " ", false
}
