package testenv

import (
	"cmp"
	"os"
)

// DeviceKind is the kind of the pod devices that tests make: that of BEELINE_DEVICE, or veth. Where the kernel has several, the tests
// run once for each.
func DeviceKind() string { return cmp.Or(os.Getenv("BEELINE_DEVICE"), "veth") }
