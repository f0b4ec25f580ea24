package main

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// selection selects upstream's tests by their names.
type selection struct {
	focus, skip string
	// needs are kernel features that some of the tests need.
	needs []need
	// excused is a list of exceptions, see readExceptions.
	excused string
}

// need is a feature that a kernel may lack.
type need struct {
	name string
	// by selects the tests that need it.
	by    string
	there func() bool
}

var selections = map[string]selection{
	"conformance": {focus: `\[sig-network\].*\[Conformance\]`, excused: exceptionsText},
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

// exceptions returns the reasons of the listed tests that need not pass, by name.
func (s selection) exceptions(listed []spec) (map[string]string, error) {
	all, err := readExceptions(s.excused)
	if err != nil {
		return nil, err
	}
	for _, n := range s.needs {
		if n.there() {
			continue
		}
		by, err := regexp.Compile(n.by)
		if err != nil {
			return nil, fmt.Errorf("select the tests that need %s: %w", n.name, err)
		}
		lacking := map[string]string{}
		for _, l := range listed {
			if by.MatchString(l.Name) {
				lacking[l.Name] = excuse + n.name
			}
		}
		if len(lacking) == 0 {
			return nil, fmt.Errorf("no test of upstream's needs %s: the selection is wrong", n.name)
		}
		maps.Copy(all, lacking)
	}
	return all, nil
}
