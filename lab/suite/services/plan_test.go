package services

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
)

func TestServicesPresets(t *testing.T) {
	quick, err := New(round.Options{})
	if err != nil {
		testenv.Missing(t, err.Error())
	}
	var names []string
	for _, c := range quick.Cells {
		names = append(names, c.Workload.Info().Name)
	}
	want := []string{
		"tcp_stream_128k", "tcp_stream_128k_clusterip_1", "tcp_rr", "tcp_rr_clusterip_1",
		"tcp_crr", "tcp_crr_clusterip_1", "tcp_crr_clusterip_100", "tcp_crr_clusterip_1000", "tcp_crr_clusterip_10000",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if err := quick.Validate(); err != nil || quick.Most != 10000 || quick.Mode != "quick" {
		t.Errorf("%v, %+v", err, quick)
	}
	if takes := quick.Estimate(); takes < time.Minute || takes > 15*time.Minute {
		t.Errorf("a quick run takes %v", takes)
	}
	full, err := New(round.Options{Full: true, Networks: []string{"beeline-socket"}, Levels: []int{50, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if len(full.Cells) != 4*3+4*2 || full.Most != 50 || suite.HasBaseline(full) || len(full.proxies()) != 1 || full.Mode != "custom" {
		t.Errorf("%+v", full)
	}
	if diff := cmp.Diff([]int{1, 50}, full.levels()); diff != "" {
		t.Error(diff)
	}
}

func TestServicesPresetsReject(t *testing.T) {
	for want, c := range map[string]round.Options{
		"no network":                    {Networks: []string{"ptp"}},
		"0 Services":                    {Levels: []int{0, 10}},
		"want 1 to":                     {Levels: []int{1000000}},
		"no workload":                   {Workloads: []string{"nothing"}},
		"not one of the suite services": {Workloads: []string{"iperf3_tcp"}},
		"path cross-node and one":       {Paths: []result.Path{result.SameNode}},
		"no placement":                  {Placements: []result.Placement{"everywhere"}},
		"has one placement":             {Placements: []result.Placement{result.OneCore, result.Spread}},
		"the path cross-node and one":   {Procs: []int{2}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			if err != nil && strings.Contains(err.Error(), "not installed") {
				testenv.Missing(t, err.Error())
			}
			t.Errorf("%+v gives %v, want %q", c, err, want)
		}
	}
	if err := (&Suite{Base: suite.Base[*member]{Schedule: round.Schedule{IPv6: true}}}).Validate(); err == nil || !strings.Contains(err.Error(), "IPv4 only") {
		t.Errorf("IPv6: %v", err)
	}
}

func TestBackendsBeside(t *testing.T) {
	p := &Suite{Backends: 10, KubeProxyBackends: 1}
	if got := p.backendsBeside(network.KubeProxy{Mode: "iptables"}); got != 1 {
		t.Errorf("kube-proxy has %d", got)
	}
	if got := p.backendsBeside(network.Beeline{}); got != 10 {
		t.Errorf("Beeline has %d", got)
	}
}

func TestFillProbed(t *testing.T) {
	const total = 1000
	answers := services.Backend{Address: services.TargetAddress(9), Node: "n1"}
	answering := map[string]int{}
	for _, o := range fillProbed(total, 10, []*testbed.Node{{Name: "n1"}}, answers) {
		switch o := o.(type) {
		case *corev1.Service:
			answering[o.Spec.ClusterIP] = 0
		case *discoveryv1.EndpointSlice:
			if o.Endpoints[0].Addresses[0] == answers.Address.String() {
				answering["backends"]++
			}
		}
	}
	if answering["backends"] != probes || len(answering) != total+1 {
		t.Errorf("%d of %d Services answer", answering["backends"], len(answering)-1)
	}
	list := probed(total)
	if list[0] != 0 || list[len(list)-1] != total-1 {
		t.Errorf("%v", list)
	}
	if diff := cmp.Diff([]int{0, 1, 2}, probed(3)); diff != "" {
		t.Error(diff)
	}
}
