package report

import (
	"bytes"
	"path/filepath"
	"testing"
)

func TestHTML(t *testing.T) {
	for _, name := range []string{"synthetic", "one-round"} {
		t.Run(name, func(t *testing.T) {
			run, err := Load(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := HTML(&out, run); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"/report.html", out.Bytes())
		})
	}
}
