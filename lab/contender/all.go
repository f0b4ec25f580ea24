package contender

import (
	"fmt"
	"slices"
	"strings"
)

// All are the contenders of this project, the baselines first, in the order in which tables show them.
func All() []Contender {
	return []Contender{
		Node{},
		NodeNetfilter{},
		Beeline{Routing: "ebpf"},
		Beeline{Routing: "kernel"},
		PTP{},
		Bridge{},
		Macvlan{},
		VXLAN{},
		Beeline{Routing: "ebpf", Tunnel: "vxlan"},
	}
}

// Names are those of All.
func Names() []string {
	var names []string
	for _, c := range All() {
		names = append(names, c.Name())
	}
	return names
}

// Select gives the contenders of these names, in the order of All and each once; all of them where names is empty.
func Select(names []string) ([]Contender, error) {
	if len(names) == 0 {
		return All(), nil
	}
	var selected []Contender
	left := slices.Clone(names)
	for _, c := range All() {
		if slices.Contains(names, c.Name()) {
			selected = append(selected, c)
			left = slices.DeleteFunc(left, func(name string) bool { return name == c.Name() })
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("no contender %q; there are: %s", left[0], strings.Join(Names(), ", "))
	}
	return selected, nil
}

// Named gives the contender of that name, with the same error as Select.
func Named(name string) (Contender, error) {
	selected, err := Select([]string{name})
	if err != nil {
		return nil, err
	}
	return selected[0], nil
}
