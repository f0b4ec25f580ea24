package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// identity is a set of peers that all rules treat alike.
type identity struct {
	pod bool
	// met are the conditions that they meet, sorted by content.
	met []*condition
	// ports are their named ports that egress rules request.
	ports []containerPort
	// entries are the sets with an entry for the identity, sorted by the sets' content, for one generation of rules.
	entries    []entry
	generation uint64
}

// entry is what a set allows an identity. ports is nil if the set's default allows the same.
type entry struct {
	set   *numbered[*set]
	ports *numbered[portList]
}

// bare reports whether nothing is known except whether it is a pod.
func (i *identity) bare() bool { return len(i.met) == 0 && len(i.ports) == 0 }

// numberOf returns the number of an identity in Tables.
func numberOf(i *numbered[*identity]) Identity {
	switch {
	case i.value.bare() && i.value.pod:
		return IdentityPod
	case i.value.bare():
		return IdentityUnknown
	case i.value.pod:
		return Identity(i.number) | IdentityPod
	}
	return Identity(i.number)
}

func (i *identity) content() content {
	kind := "address"
	if i.pod {
		kind = "pod"
	}
	d := newDigest(kind)
	d.number(uint64(len(i.met)))
	for _, c := range i.met {
		d.bytes(c.content[:])
	}
	d.number(uint64(len(i.ports)))
	for _, p := range i.ports {
		d.text(p.name)
		d.number(uint64(p.protocol)<<16 | uint64(p.number))
	}
	return d.content()
}

func comparePorts(a, b containerPort) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.number, b.number))
}

// portsOf returns the numbers of a pod's named ports that rules request, sorted.
func portsOf(named []cluster.ContainerPort, requested map[namedPort][]*numbered[*set]) []containerPort {
	if len(requested) == 0 {
		return nil
	}
	var ports []containerPort
	for _, p := range named {
		name := namedPort{p.Name, p.Protocol}
		if len(requested[name]) > 0 {
			ports = append(ports, containerPort{name, p.Number})
		}
	}
	slices.SortFunc(ports, comparePorts)
	return slices.Compact(ports)
}
