package result

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The page is what users of the file read: it has every field and every metric.
func TestPageNamesEveryField(t *testing.T) {
	content, err := os.ReadFile("../../docs/results.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() || seen[of] {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/results.md lacks %s.%s: `%s`", of.Name(), field.Name, name)
			}
			visit(field.Type)
		}
	}
	visit(reflect.TypeFor[Run]())
	if len(seen) < 10 {
		t.Errorf("only %d types seen", len(seen))
	}
	for _, m := range Metrics {
		if !strings.Contains(page, "`"+m.Name+"`") {
			t.Errorf("docs/results.md lacks metric `%s`", m.Name)
		}
	}
}
