package network

import (
	"fmt"
	"slices"
	"strings"
)

// All are the networks of this project, the baselines first, in the order in which tables show them.
func All() []Network {
	return []Network{
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

// Select gives the networks of these names, in the order of All and each once; all of them where names is empty.
func Select(names []string) ([]Network, error) {
	if len(names) == 0 {
		return All(), nil
	}
	var selected []Network
	left := slices.Clone(names)
	for _, c := range All() {
		if slices.Contains(names, c.Name()) {
			selected = append(selected, c)
			left = slices.DeleteFunc(left, func(name string) bool { return name == c.Name() })
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("no network %q; there are: %s", left[0], strings.Join(Names(), ", "))
	}
	return selected, nil
}

// Named gives the network of that name, with the same error as Select.
func Named(name string) (Network, error) {
	selected, err := Select([]string{name})
	if err != nil {
		return nil, err
	}
	return selected[0], nil
}
