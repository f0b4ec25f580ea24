package main

import (
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// selection selects upstream's tests by their names.
type selection struct {
	focus, skip string
	// needs are kernel features that some of the tests need.
	needs []need
}

// need is a feature that a kernel may lack.
type need struct {
	name string
	// by selects the tests that need it.
	by    string
	there func() bool
}

var selections = map[string]selection{
	"conformance": {focus: `\[sig-network\].*\[Conformance\]`},
	"netpol":      {focus: `\[sig-network\] Netpol `, needs: []need{{"SCTP", `\[Feature:SCTPConnectivity\]`, haveSCTP}}},
	// Only for dual-stack clusters.
	"dualstack": {focus: `\[sig-network\].*\[Feature:IPv6DualStack\]`, needs: []need{{"SCTP", `\[Feature:SCTPConnectivity\]`, haveSCTP}}},
	// Left out: tests that need a cloud or SCTP (Feature), stop components of the cluster (Disruptive), need the
	// cluster to themselves (Serial), or take minutes (Slow).
	"services": {
		focus: `\[sig-network\] (Services|Conntrack|Traffic Distribution|Networking Granular Checks: Services) `,
		skip:  `\[(Conformance|Disruptive|Serial|Slow|Feature:[^]]*)\]`,
	},
}

func haveSCTP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// flags returns ginkgo's flags for a selection, with this prefix.
func (s selection) flags(prefix string) []string {
	flags := []string{prefix + "focus=" + s.focus}
	if s.skip != "" {
		flags = append(flags, prefix+"skip="+s.skip)
	}
	return flags
}

// here returns the selection without tests of features that this machine's kernel lacks.
func (s selection) here() selection {
	var skip []string
	if s.skip != "" {
		skip = append(skip, s.skip)
	}
	for _, n := range s.needs {
		if !n.there() {
			skip = append(skip, n.by)
		}
	}
	s.skip = strings.Join(skip, "|")
	return s
}

// lacking returns the features that this machine's kernel lacks, by the names of the listed tests that need them.
func (s selection) lacking(listed []spec) (map[string]string, error) {
	lacking := map[string]string{}
	for _, n := range s.needs {
		if n.there() {
			continue
		}
		by := regexp.MustCompile(n.by)
		found := false
		for _, l := range listed {
			if by.MatchString(l.Name) {
				lacking[l.Name] = n.name
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("no test of upstream's needs %s: the selection is wrong", n.name)
		}
	}
	return lacking, nil
}
