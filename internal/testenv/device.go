package testenv

import (
	"cmp"
	"os"
)

// DeviceVariable is the environment variable that names the kind of pod devices that tests make.
const DeviceVariable = "BEELINE_DEVICE"

// DeviceKind is the kind of the pod devices that tests make: that of DeviceVariable, or veth. Where the kernel has several, the tests
// run once for each.
func DeviceKind() string { return cmp.Or(os.Getenv(DeviceVariable), "veth") }
