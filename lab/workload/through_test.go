package workload

import (
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
)

func TestThrough(t *testing.T) {
	names, titles := map[string]bool{}, map[string]bool{}
	for _, n := range []int{1, 10000} {
		info := Through{Workload: crr, Services: n}.Info()
		if info.Of != "tcp_crr" || info.Target != result.ToClusterIP || info.Services != n || info.Metric != crr.info.Metric {
			t.Errorf("%+v", info)
		}
		names[info.Name], titles[info.Title] = true, true
	}
	if len(names) != 2 || len(titles) != 2 || !names["tcp_crr_clusterip_10000"] {
		t.Errorf("%v, %v", names, titles)
	}
}
