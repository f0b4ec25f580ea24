package services

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/suite/internal/suitetest"
)

func TestMain(m *testing.M) { suitetest.Main(m) }

func TestRunServices(t *testing.T) {
	testenv.Root(t)
	suitetest.NeedTools(t)
	if why := (network.KubeProxy{Mode: "nftables"}).Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	if err := network.BuildKubeProxy(t.Context(), t.Logf); err != nil {
		testenv.Missing(t, "kube-proxy: "+err.Error())
	}
	p, err := New(round.Options{
		Networks: []string{"node", "kube-proxy-nftables"}, Workloads: []string{"tcp_crr"}, Levels: []int{1, 30}, Rounds: 1, Length: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Gate = suitetest.OpenGate()
	p.WarmUp, p.Changes, p.Seed = 0, 2, 1
	run, err := round.Run(t.Context(), p, round.NewProgress(t.Output(), p.Estimate()))
	suitetest.NothingLeft(t)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for _, s := range run.Samples {
		if s.Error != "" || s.Values[result.Rate] <= 0 {
			t.Errorf("%s of %s: %v, %s", s.Workload, s.Network, s.Values, s.Error)
		}
		values[s.Network+" "+s.Workload]++
	}
	for _, want := range []string{
		"node tcp_crr", "node/again tcp_crr_clusterip_30", "kube-proxy-nftables tcp_crr", "kube-proxy-nftables tcp_crr_clusterip_1", "kube-proxy-nftables tcp_crr_clusterip_30",
	} {
		if values[want] != 1 {
			t.Errorf("%d samples of %s", values[want], want)
		}
	}
	if len(run.Networks) != 2 || run.Networks[0].Name != stats.Baseline || run.Settings.Suite != "services" {
		t.Errorf("%+v", run.Networks)
	}
	if n := len(run.Services.Convergence); n != 2 {
		t.Fatalf("%d kinds of changes", n)
	}
	for _, c := range run.Services.Convergence {
		if len(c.Milliseconds) != 2 || c.Error != "" || c.Services != 30 || c.Milliseconds[0] <= 0 {
			t.Errorf("%+v", c)
		}
	}
	if len(run.Services.Syncs) != 1 {
		t.Fatalf("%+v", run.Services.Syncs)
	}
	if s := run.Services.Syncs[0]; len(s.Seconds) != 1 || s.RSSBytes == 0 || s.Error != "" || s.Backends != 10 {
		t.Errorf("%+v", s)
	}
}
