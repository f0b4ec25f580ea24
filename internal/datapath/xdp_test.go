package datapath

import "testing"

func TestAccelerationPlace(t *testing.T) {
	for _, c := range []struct {
		want     Acceleration
		services bool
		driver   string
		place    Acceleration
		reason   string
	}{
		{AccelerationAuto, true, "device", AccelerationXDP, "the driver has it"},
		{AccelerationAuto, true, "bond", AccelerationXDP, "the driver has it"},
		{AccelerationAuto, true, "veth", AccelerationTC, "veth copies each packet for XDP that a stack has sent"},
		{AccelerationXDP, true, "device", AccelerationXDP, "it is asked for"},
		{AccelerationXDP, true, "veth", AccelerationXDP, "it is asked for"},
		{AccelerationTC, true, "device", AccelerationTC, "it is asked for"},
		{"", true, "device", AccelerationTC, "it is asked for"},
		{AccelerationAuto, false, "device", AccelerationTC, "no Services are translated here"},
		{AccelerationXDP, false, "device", AccelerationTC, "no Services are translated here"},
	} {
		if got, want := c.want.place(c.services, c.driver), (Accelerated{c.place, c.reason}); got != want {
			t.Errorf("%q at %s with Services %t is %+v, expected %+v", c.want, c.driver, c.services, got, want)
		}
	}
}
