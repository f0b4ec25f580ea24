package chart

// frame is the common part of charts with one row per network: labels on the left, values on the right, a scale between.
type frame struct {
	canvas
	axis
	names       []name
	labelRight  float64
	top, row    float64 // upper end and height of the rows
	lowerMargin float64
}

// name is the text of a row.
type name struct {
	label, value string
	highlight    bool
}

const (
	rowHeight = 26
	// tallRow is the least height of all rows of a chart if a label takes two lines.
	tallRow = 34
)

// newFrame makes a frame with rows of the given height. The scale lies between two positions.
func newFrame(names []name, row float64, scale func(left, right float64) axis) *frame {
	f := &frame{names: names, row: row, lowerMargin: 24}
	var labels []string
	values := 0.0
	for _, n := range names {
		labels = append(labels, n.label)
		values = max(values, boldWidth(n.value))
	}
	f.labelRight = labelWidth(labels)
	for _, l := range labels {
		if len(lines(l, f.labelRight-4)) > 1 {
			f.row = max(f.row, tallRow)
		}
	}
	f.axis = scale(f.labelRight+10, Width-values-18)
	return f
}

// begin draws the scale, labels and values below top.
func (f *frame) begin(top float64, tick func(float64) string) {
	f.top = top
	f.axis.draw(&f.canvas, top, f.bottom(), tick)
	for i, n := range f.names {
		label := lines(n.label, f.labelRight-4)
		for j, line := range label {
			f.text(f.class(i)+" label", "end", f.labelRight, f.y(i)+4.5+lineHeight*(float64(j)-float64(len(label)-1)/2), line)
		}
		f.text(f.class(i)+" value", "end", Width-2, f.y(i)+4.5, n.value)
	}
	f.canvas.height = f.bottom() + f.lowerMargin
}

// unit writes what the scale measures.
func (f *frame) unit(s string) {
	if s != "" {
		f.text("note", "middle", (f.left+f.right)/2, f.bottom()+33, s)
		f.canvas.height = f.bottom() + 40
	}
}

func (f *frame) bottom() float64 { return f.top + f.row*float64(len(f.names)) }

// y is the middle of a row.
func (f *frame) y(i int) float64 { return f.top + f.row*(float64(i)+0.5) }

// class is the class of the marks of a row.
func (f *frame) class(i int) string {
	if f.names[i].highlight {
		return "mark hot"
	}
	return "mark"
}

// whisker draws an interval in a row.
func (f *frame) whisker(i int, low, high float64) {
	f.line(f.class(i)+" whisker", f.at(low), f.y(i), f.at(high), f.y(i))
}
