package published

import (
	"fmt"
	"math"
	"testing"
)

func TestPortableRatios(t *testing.T) {
	want := map[string]float64{ // as the literature quotes them
		"cilium-2021/TCP_RR, 1 process/Cilium eBPF":                  0.946,
		"cilium-2021/TCP_RR, 1 process/Cilium legacy":                0.711,
		"cilium-2021/TCP_RR, 1 process/Calico iptables":              0.751,
		"cilium-2021/TCP_CRR, 1 process/Cilium eBPF":                 0.964,
		"cilium-2021/TCP_CRR, 1 process/Cilium legacy":               0.753,
		"cilium-2021/TCP_CRR, 1 process/Calico iptables":             0.713,
		"cilium-2021/TCP_STREAM, 1 stream/Cilium eBPF":               1.01,
		"cilium-2021/TCP_STREAM, 1 stream/Cilium legacy":             0.86,
		"cilium-2021/TCP_STREAM, 1 stream/Calico iptables":           0.84,
		"spiderpool-io/netperf TCP_RR -r100,100, pod IP/Cilium eBPF": 0.888,
		"itnext-2024/iperf3 TCP, 1 stream, pod to pod/Flannel VXLAN": 0.637,
	}
	for _, s := range Studies() {
		for _, f := range s.Figures {
			key := s.ID + "/" + f.Test + "/" + f.System
			if w, ok := want[key]; ok {
				delete(want, key)
				if math.Abs(f.Ratio-w) > 0.005 {
					t.Errorf("%s: ratio %.3f, want %.3f", key, f.Ratio, w)
				}
			}
		}
	}
	for key := range want {
		t.Errorf("%s: not carried", key)
	}
}

// Every figure says how it was obtained and which way is better, and stands once.
func TestFiguresAreWhole(t *testing.T) {
	seen := map[string]bool{}
	read := 0
	for _, s := range Studies() {
		if s.Title == "" || s.Author == "" || s.Machine == "" || s.Remark == "" || s.Year < 2015 {
			t.Errorf("study %q lacks a field", s.ID)
		}
		if len(s.Figures) == 0 {
			t.Errorf("study %q has no figures", s.ID)
		}
		for _, f := range s.Figures {
			key := fmt.Sprint(s.ID, f.Test, f.System)
			if seen[key] {
				t.Errorf("%s: twice", key)
			}
			seen[key] = true
			read++
			switch f.Grade {
			case Raw, Chart, Stated, Unusable:
			default:
				t.Errorf("%s: grade %q", key, f.Grade)
			}
			if f.Better != "higher" && f.Better != "lower" || f.Unit == "" || f.Value <= 0 {
				t.Errorf("%s: %+v", key, f)
			}
			if (f.Baseline == "") != (f.Ratio == 0) {
				t.Errorf("%s: no usable baseline %q", key, f.Baseline)
			}
			if (f.Network == "") != (f.Against == "") || (f.Network == "") != (len(f.Workloads) == 0) {
				t.Errorf("%s: counterpart is incomplete: %+v", key, f)
			}
		}
	}
	if want := len(table(figuresCSV)); read != want {
		t.Errorf("%d of %d figures belong to a study", read, want)
	}
}

// The node row of one study contradicts its other rows; nothing may be divided by it or compared with it.
func TestUnusableRowIsNeverCompared(t *testing.T) {
	found := 0
	for _, s := range Studies() {
		for _, f := range s.Figures {
			if f.Grade == Unusable {
				found++
				if f.Comparable() || f.Ratio != 0 {
					t.Errorf("%s, %s, %s is compared", s.ID, f.Test, f.System)
				}
			}
			if s.ID == "spiderpool-io" && f.Baseline == "node" {
				t.Errorf("%s, %s is divided by the node row", f.Test, f.System)
			}
		}
	}
	if found == 0 {
		t.Error("the node row is not marked")
	}
}
