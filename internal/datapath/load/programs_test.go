package load_test

import (
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
)

// Programs that a configuration does not use are not loaded, and attaching them is an error.
func TestOpenLoadsWhatIsOfUse(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  config.Datapath
		want []string
	}{
		{"plain", config.Datapath{EBPFRouting: true}, []string{bpf.ProgFromPod, bpf.ProgFromWire}},
		{"kernel routing", config.Datapath{}, []string{bpf.ProgFromPod, bpf.ProgToPod}},
		{"masquerading", config.Datapath{EBPFRouting: true, Masquerade: true}, []string{bpf.ProgFromPod, bpf.ProgFromWire, bpf.ProgToWire}},
		{"policies", config.Datapath{EBPFRouting: true, Policy: true}, []string{bpf.ProgFromPod, bpf.ProgToPod, bpf.ProgFromWire}},
		{"Services at tc", config.Datapath{EBPFRouting: true, Services: true}, []string{bpf.ProgFromPod, bpf.ProgToPod, bpf.ProgFromWire, bpf.ProgToWire}},
		{"Services at XDP and at sockets", config.Datapath{EBPFRouting: true, Services: true, Acceleration: config.AccelerationAuto, Cgroup: "/somewhere"},
			append([]string{bpf.ProgFromPod, bpf.ProgToPod, bpf.ProgFromWire, bpf.ProgToWire, bpf.ProgWireXdp}, bpf.SocketProgramNames...)},
	} {
		want := slices.Sorted(slices.Values(append(c.want, bpf.TunnelPrograms...)))
		if got := slices.Sorted(slices.Values(c.cfg.Programs())); !slices.Equal(got, want) {
			t.Errorf("%s: programs %v, want %v", c.name, got, want)
		}
	}
}
