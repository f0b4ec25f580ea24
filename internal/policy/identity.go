package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// identity is all that policies can tell of the peers with one number.
type identity struct {
	pod bool
	// met are the conditions that they meet, sorted by content.
	met []*condition
	// ports are those that rules for egress ask for by name.
	ports []containerPort
	// entries are the sets with something to say of them, sorted by the sets' contents; made for one generation of rules.
	entries    []entry
	generation uint64
}

// entry is what a set allows an identity. ports is nil if that is what it would be allowed anyway.
type entry struct {
	set   *numbered[*set]
	ports *numbered[portList]
}

// bare tells whether nothing is known but whether it is a pod.
func (i *identity) bare() bool { return len(i.met) == 0 && len(i.ports) == 0 }

// numberOf gives the number of an identity as Tables have it.
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

// portsOf gives the numbers of those of a pod's named ports whose names are asked for, in a fixed order.
func portsOf(named []cluster.ContainerPort, asked map[namedPort][]*numbered[*set]) []containerPort {
	if len(asked) == 0 {
		return nil
	}
	var ports []containerPort
	for _, p := range named {
		name := namedPort{p.Name, p.Protocol}
		if len(asked[name]) > 0 {
			ports = append(ports, containerPort{name, p.Number})
		}
	}
	slices.SortFunc(ports, comparePorts)
	return slices.Compact(ports)
}
