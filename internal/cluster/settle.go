package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// manifestFile is one file: what it said when it was last right, and what it says now.
type manifestFile struct {
	path string
	// good is in force until something better comes; nil if there was never any.
	good *manifest
	// read is what the file says now; nil while it cannot be read or understood, for the reasons in errs.
	read *manifest
	errs []error
	// early says that the file was there when the directory was first read: a reader before this one may have
	// understood it.
	early bool
}

// settle decides what is in force: for each file what it says now, or what it said when it was last
// right. Nodes of different files may contradict each other (same name, same address, overlapping
// ranges); then the file that changed gives way, the later in the alphabet if both did. Files are sorted by path.
func settle(files []*manifestFile) ([]nodeObject, []error) {
	var errs []error
	use := make(map[string]*manifest, len(files))
	for _, f := range files {
		errs = append(errs, f.errs...)
		use[f.path] = f.good
		if f.read != nil {
			use[f.path] = f.read
		}
	}
	for {
		var nodes []nodeObject
		for _, f := range files {
			if m := use[f.path]; m != nil {
				nodes = append(nodes, m.nodes...)
			}
		}
		clash := firstClash(nodes)
		if clash == nil {
			for _, f := range files {
				if m := use[f.path]; m != nil {
					f.good = m
				}
			}
			return nodes, errs
		}
		loser := giveWay(files, use, clash)
		errs = append(errs, clash.errorFor(loser.path))
		if use[loser.path] == loser.good {
			use[loser.path] = nil
		} else {
			use[loser.path] = loser.good
		}
	}
}

// giveWay picks the file of a clash that loses.
func giveWay(files []*manifestFile, use map[string]*manifest, c *clash) *manifestFile {
	var loser *manifestFile
	loserChanged := false
	for _, f := range files {
		if f.path != c.a.file && f.path != c.b.file {
			continue
		}
		changed := use[f.path] != f.good
		if loser == nil || changed || !loserChanged {
			loser, loserChanged = f, changed
		}
	}
	return loser
}

// clash is a contradiction between two nodes: a says what, at aLine of its file, that b says as well.
type clash struct {
	a, b         nodeObject
	aLine, bLine int
	what         string // such as "has the same name as"; the other node follows
}

// errorFor words the clash as a complaint about the file, which is one of the two.
func (c *clash) errorFor(file string) error {
	own, line, other, otherLine := c.b, c.bLine, c.a, c.aLine
	if c.b.file != file {
		own, line, other, otherLine = c.a, c.aLine, c.b, c.bLine
	}
	return fmt.Errorf("%s:%d: Node %s: %s Node %s (%s:%d)", own.file, line, own.Name, c.what, other.Name, other.file, otherLine)
}

// firstClash finds a contradiction, always the same one for the same nodes.
func firstClash(nodes []nodeObject) *clash {
	names := map[string]nodeObject{}
	type place struct {
		node nodeObject
		line int
	}
	addresses := map[netip.Addr]place{}
	type cidr struct {
		netip.Prefix
		place
	}
	var cidrs []cidr
	for _, n := range nodes {
		if other, taken := names[n.Name]; taken {
			return &clash{a: other, b: n, aLine: other.nameLine, bLine: n.nameLine, what: "has the same name as"}
		}
		names[n.Name] = n
		for i, addr := range n.Addresses {
			if other, taken := addresses[addr]; taken {
				return &clash{a: other.node, b: n, aLine: other.line, bLine: n.addressLine[i], what: fmt.Sprintf("address %s is also that of", addr)}
			}
			addresses[addr] = place{n, n.addressLine[i]}
		}
		for i, prefix := range n.PodCIDRs {
			cidrs = append(cidrs, cidr{prefix, place{n, n.cidrLine[i]}})
		}
	}
	// Sorted by address, and the wider first, any overlap shows between two neighbours.
	slices.SortStableFunc(cidrs, func(a, b cidr) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for i := 1; i < len(cidrs); i++ {
		a, b := cidrs[i-1], cidrs[i]
		if a.Overlaps(b.Prefix) {
			return &clash{a: a.node, b: b.node, aLine: a.line, bLine: b.line,
				what: fmt.Sprintf("pod range overlaps (%s and %s) with that of", a.Prefix, b.Prefix)}
		}
	}
	return nil
}
