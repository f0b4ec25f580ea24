package poddevice

import (
	"errors"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/device"
)

func TestChoose(t *testing.T) {
	netkit := Node{Device: device.Netkit, VethRuntimeClasses: []string{"kata*", "firecracker"}}
	old := Node{Device: device.Veth, NoNetkit: errors.New("Linux 6.1 has none")}
	for name, c := range map[string]struct {
		pod  Pod
		node Node
		want device.Kind
		// err is a part of the error.
		err string
	}{
		"nothing is said":                           {Pod{}, netkit, device.Netkit, ""},
		"nothing is said, old kernel":               {Pod{}, old, device.Veth, ""},
		"the annotation":                            {Pod{Annotation: device.Veth}, netkit, device.Veth, ""},
		"the annotation before the pool":            {Pod{Annotation: device.Veth, Pool: "a", OfPool: device.Netkit}, netkit, device.Veth, ""},
		"the annotation before a macvlan pool":      {Pod{Annotation: device.Netkit, Pool: "a", OfPool: device.Macvlan}, netkit, device.Netkit, ""},
		"the pool":                                  {Pod{Pool: "a", OfPool: device.Veth}, netkit, device.Veth, ""},
		"a pool without a device":                   {Pod{Pool: "a"}, netkit, device.Netkit, ""},
		"the network before the pool":               {Pod{Network: device.Veth, Pool: "a", OfPool: device.Netkit}, netkit, device.Veth, ""},
		"the network and the annotation agree":      {Pod{Network: device.Veth, Annotation: device.Veth}, netkit, device.Veth, ""},
		"a virtual machine":                         {Pod{RuntimeClass: "kata-qemu"}, netkit, device.Veth, ""},
		"a virtual machine before network and pool": {Pod{RuntimeClass: "kata", Network: device.Netkit, Pool: "a", OfPool: device.Macvlan}, netkit, device.Veth, ""},
		"another runtime":                           {Pod{RuntimeClass: "nokata"}, netkit, device.Netkit, ""},
		"a pod that could not be read":              {Pod{Unknown: true}, netkit, device.Veth, ""},
		"a pod that could not be read, of a pool":   {Pod{Unknown: true, Pool: "a", OfPool: device.Netkit}, netkit, device.Netkit, ""},

		"an unknown kind":                 {Pod{Annotation: "tap"}, netkit, "", `annotation networking.beeline.dev/device requests "tap"`},
		"an unknown kind of the network":  {Pod{Network: "tap"}, netkit, "", `the network configuration requests "tap"`},
		"netkit on an old kernel":         {Pod{Annotation: device.Netkit}, old, "", "Linux 6.1 has none"},
		"netkit of a pool, old kernel":    {Pod{Pool: "a", OfPool: device.Netkit}, old, "", "IPPool a requests netkit"},
		"netkit for a virtual machine":    {Pod{RuntimeClass: "kata", Annotation: device.Netkit}, netkit, "", "veth is required by runtime class kata"},
		"against the network":             {Pod{Network: device.Veth, Annotation: device.Netkit}, netkit, "", "veth is required by the network configuration"},
		"macvlan without a pool":          {Pod{Annotation: device.Macvlan}, netkit, "", "only an IPPool with spec.device macvlan allows: the pod has none"},
		"macvlan of a pool without it":    {Pod{Annotation: device.Macvlan, Pool: "a"}, netkit, "", "IPPool a names no device"},
		"macvlan of another pool":         {Pod{Annotation: device.Macvlan, Pool: "a", OfPool: device.Veth}, netkit, "", "IPPool a has veth"},
		"macvlan of the network, no pool": {Pod{Network: device.Macvlan}, netkit, "", "the network configuration requests macvlan"},
		"macvlan of the pool":             {Pod{Pool: "a", OfPool: device.Macvlan}, old, device.Macvlan, ""},
		"macvlan for all pools":           {Pod{Pool: "a"}, Node{Device: device.Veth, DeviceOfPools: device.Macvlan}, device.Macvlan, ""},
		"macvlan for other pools":         {Pod{Pool: "a", OfPool: device.Veth}, Node{Device: device.Veth, DeviceOfPools: device.Macvlan}, device.Veth, ""},
		"macvlan for pools, no pool":      {Pod{}, Node{Device: device.Veth, DeviceOfPools: device.Macvlan}, device.Veth, ""},
	} {
		got, err := Choose(c.pod, c.node)
		switch {
		case got != c.want, (err == nil) != (c.err == "" || c.want != ""), err != nil && !strings.Contains(err.Error(), c.err):
			t.Errorf("%s: %q, error %v; want %q, error %q", name, got, err, c.want, c.err)
		}
	}
}
