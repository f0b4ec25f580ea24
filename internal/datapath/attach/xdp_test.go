package attach

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
)

func TestAccelerationPlace(t *testing.T) {
	for _, c := range []struct {
		want     config.Acceleration
		services bool
		driver   string
		Netns    config.Acceleration
		reason   string
	}{
		{config.AccelerationAuto, true, "device", config.AccelerationXDP, "the driver has it"},
		{config.AccelerationAuto, true, "bond", config.AccelerationXDP, "the driver has it"},
		{config.AccelerationAuto, true, "veth", config.AccelerationTC, "veth copies each packet for XDP that a stack has sent"},
		{config.AccelerationXDP, true, "device", config.AccelerationXDP, "it is requested"},
		{config.AccelerationXDP, true, "veth", config.AccelerationXDP, "it is requested"},
		{config.AccelerationTC, true, "device", config.AccelerationTC, "it is requested"},
		{"", true, "device", config.AccelerationTC, "it is requested"},
		{config.AccelerationAuto, false, "device", config.AccelerationTC, "no Services are translated here"},
		{config.AccelerationXDP, false, "device", config.AccelerationTC, "no Services are translated here"},
	} {
		if got, want := chooseHook(c.want, c.services, c.driver), (Accelerated{c.Netns, c.reason}); got != want {
			t.Errorf("%q at %s with Services %t is %+v, expected %+v", c.want, c.driver, c.services, got, want)
		}
	}
}
