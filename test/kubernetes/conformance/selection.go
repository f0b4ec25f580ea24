package main

import (
	"errors"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// selection selects upstream's tests by their names.
type selection struct {
	focus, skip string
	// sctp says that some of the tests need SCTP, which a kernel may lack.
	sctp bool
}

// needsSCTP selects the tests that need SCTP.
const needsSCTP = `\[Feature:SCTPConnectivity\]`

var selections = map[string]selection{
	"conformance": {focus: `\[sig-network\].*\[Conformance\]`},
	"netpol":      {focus: `\[sig-network\] Netpol `, sctp: true},
	// Only for dual-stack clusters.
	"dualstack": {focus: `\[sig-network\].*\[Feature:IPv6DualStack\]`, sctp: true},
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

// here returns the selection without the tests that need SCTP, if the kernel does not have it.
func (s selection) here(sctp bool) selection {
	if s.sctp && !sctp {
		s.skip = strings.TrimPrefix(s.skip+"|"+needsSCTP, "|")
	}
	return s
}

// lacking returns the listed tests that need SCTP, if the kernel does not have it.
func (s selection) lacking(listed []spec, sctp bool) (names []string, err error) {
	if !s.sctp || sctp {
		return nil, nil
	}
	for _, l := range listed {
		if regexp.MustCompile(needsSCTP).MatchString(l.Name) {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		err = errors.New("no test of upstream's needs SCTP: the selection is wrong")
	}
	return names, err
}
