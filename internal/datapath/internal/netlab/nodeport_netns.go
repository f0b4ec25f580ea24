package netlab

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// EachPlace runs a test with NodePorts forwarded at tc and at XDP.
func EachPlace(t *testing.T, o Options, dsr bool, f func(t *testing.T, n *Network)) {
	for _, place := range []config.Acceleration{config.AccelerationTC, config.AccelerationXDP} {
		t.Run(string(place), func(t *testing.T) {
			o.Cfg = fixtures.ServicesConfig(place)
			o.Cfg.DSR = dsr
			n := NewNetwork(t, o)
			n.A.ServeNodePort(t, dsr, n.B1)
			n.B.ServeNodePort(t, dsr, n.B1)
			if place == config.AccelerationXDP {
				n.Accelerate(t, n.A)
			}
			f(t, n)
		})
	}
}
