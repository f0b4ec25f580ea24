// Package poddevice chooses the kind of a new pod's device. It is pure.
package poddevice

import (
	"cmp"
	"fmt"
	"path"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/device"
)

// Pod is what decides about the device of one pod.
type Pod struct {
	// Unknown says that the pod could not be read: it may be that of a virtual machine.
	Unknown bool
	// Network is the kind that the network configuration requests, Annotation the pod's own wish; empty for none.
	Network, Annotation device.Kind
	// RuntimeClass is spec.runtimeClassName.
	RuntimeClass string
	// Pool is the pod's IPPool, the first of several, and OfPool the kind that it names; empty for none.
	Pool   string
	OfPool device.Kind
}

// Node is what one node has.
type Node struct {
	// Device is the kind of pods that nothing else is said of.
	Device device.Kind
	// DeviceOfPools is the kind of pods whose IPPool names none; empty: Device.
	DeviceOfPools device.Kind
	// NoNetkit says why there are no netkit devices; nil if there are.
	NoNetkit error
	// VethRuntimeClasses are patterns (path.Match) of the runtime classes whose pods need veth: virtual machines, which
	// take a pod's device apart and understand no other kind.
	VethRuntimeClasses []string
}

// Choose gives the kind of a pod's device.
//
// What the pod's runtime needs comes first, then the network configuration, the pod's annotation, its IPPool, the node. An
// annotation that cannot be met is an error: whoever wrote it relies on it. All kinds enforce the same, so a pod may
// choose between them, except for macvlan: a MAC on the physical network is for the owner of an IPPool to give.
func Choose(p Pod, n Node) (device.Kind, error) {
	kind, by := p.choose(n)
	if p.Annotation != "" && p.Annotation != kind {
		return "", fmt.Errorf("annotation %s: %s, but %s is required by %s", v1alpha1.AnnotationDevice, p.Annotation, kind, by)
	}
	switch {
	case kind == device.Macvlan && p.ofPool(n) != device.Macvlan:
		return "", fmt.Errorf("%s requests macvlan, which only an IPPool with spec.device macvlan allows: %s", by, p.pool())
	case !kind.Known():
		return "", fmt.Errorf("%s requests %q, which is not one of the kinds of devices: %q", by, kind, device.Kinds)
	case kind == device.Netkit && n.NoNetkit != nil:
		return "", fmt.Errorf("%s requests netkit, and this node has no netkit devices: %w", by, n.NoNetkit)
	}
	return kind, nil
}

// choose gives a kind and who wants it.
func (p Pod) choose(n Node) (kind device.Kind, by string) {
	switch {
	case n.needsVeth(p.RuntimeClass):
		return device.Veth, "runtime class " + p.RuntimeClass + " (--veth-runtime-classes)"
	case p.Network != "":
		return p.Network, "the network configuration"
	case p.Annotation != "":
		return p.Annotation, "annotation " + v1alpha1.AnnotationDevice
	case p.OfPool != "":
		return p.OfPool, "IPPool " + p.Pool
	case p.ofPool(n) != "":
		return p.ofPool(n), "--device"
	case p.Unknown:
		return device.Veth, "a pod that cannot be read" // every runtime understands it
	}
	return n.Device, "--device"
}

// ofPool gives the kind of the devices of the pod's IPPool; empty for none.
func (p Pod) ofPool(n Node) device.Kind {
	if p.Pool == "" {
		return ""
	}
	return cmp.Or(p.OfPool, n.DeviceOfPools)
}

func (n Node) needsVeth(class string) bool {
	for _, pattern := range n.VethRuntimeClasses {
		if matches, _ := path.Match(pattern, class); matches && class != "" { // the patterns were checked
			return true
		}
	}
	return false
}

// pool says in a few words which pool the pod has.
func (p Pod) pool() string {
	switch {
	case p.Pool == "":
		return "the pod has none"
	case p.OfPool == "":
		return "IPPool " + p.Pool + " names no device"
	}
	return "IPPool " + p.Pool + " has " + string(p.OfPool)
}
