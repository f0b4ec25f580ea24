package network

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSelect(t *testing.T) {
	for _, test := range []struct {
		asked, want []string
		err         string
	}{
		{asked: nil, want: Names(All())},
		{asked: []string{"ptp", "node", "ptp"}, want: []string{"node", "ptp"}},
		{asked: []string{"node", "nod"}, err: `no network "nod"`},
	} {
		got, err := Select(All(), test.asked)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("Select(%q) gives %v, want %q", test.asked, err, test.err)
			}
			continue
		}
		var names []string
		for _, c := range got {
			names = append(names, c.Name())
		}
		if diff := cmp.Diff(test.want, names); diff != "" || err != nil {
			t.Errorf("Select(%q): %v\n%s", test.asked, err, diff)
		}
	}
}

func TestNetworksAreDistinct(t *testing.T) {
	names, descriptions := map[string]bool{}, map[string]bool{}
	for _, c := range All() {
		if names[c.Name()] || descriptions[c.Description()] || c.Description() == "" {
			t.Errorf("%q: %q is no name and description of its own", c.Name(), c.Description())
		}
		names[c.Name()], descriptions[c.Description()] = true, true
	}
}
