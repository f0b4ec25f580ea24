package endpoint

import (
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

const (
	uidOfServer = "0b6f9a55-3b1e-4c2e-9d4e-1f1c6a1f0a01"
	uidOfStatic = "0b6f9a553b1e4c2e9d4e1f1c6a1f0a01"
)

// noPackets is a pod that sends nothing.
func noPackets(string) (uint64, bool) { return 7, true }

// looks checks once a minute for a time, and gives the pods that are forgotten in the end.
func looks(f *forgotten, begin time.Time, lasting time.Duration, endpoints map[string]agentapi.Endpoint, pods *clusterPods) (over []string) {
	for at := time.Duration(0); at <= lasting; at += time.Minute {
		over = f.look(begin.Add(at), endpoints, pods, noPackets)
	}
	return over
}

// A pod that an API server created and no longer has is forgotten after a while; a pod with another explanation is
// not.
func TestPodsOfTheClusterAreNotForgotten(t *testing.T) {
	begin := time.Now()
	pod := func(uid string) agentapi.PodRef { return agentapi.PodRef{Namespace: "shop", Name: "web", UID: uid} }
	none := &clusterPods{}
	for name, c := range map[string]struct {
		pod  agentapi.PodRef
		pods *clusterPods
		over bool
	}{
		"gone":                          {pod(uidOfServer), none, true},
		"there":                         {pod(uidOfServer), &clusterPods{uids: map[cluster.UID]bool{cluster.NewUID(uidOfServer): true}}, false},
		"another one of its name":       {pod(uidOfServer), &clusterPods{uids: map[cluster.UID]bool{cluster.NewUID("0b6f9a55-3b1e-4c2e-9d4e-1f1c6a1f0a02"): true}}, true},
		"there and not understood":      {pod(uidOfServer), &clusterPods{unread: map[cluster.Key]bool{{Namespace: "shop", Name: "web"}: true}}, false},
		"the API server does not reply": {pod(uidOfServer), nil, false},
		"static":                        {pod(uidOfStatic), none, false},
		"of no UID":                     {pod(""), none, false},
		"no pod":                        {agentapi.PodRef{}, none, false},
	} {
		endpoints := map[string]agentapi.Endpoint{"bl1": {Pod: c.pod}}
		if over := looks(&forgotten{}, begin, forgottenAfter-time.Minute, endpoints, c.pods); len(over) > 0 {
			t.Errorf("%s: forgotten too early: %v", name, over)
		}
		if over := looks(&forgotten{}, begin, forgottenAfter, endpoints, c.pods); len(over) > 0 != c.over {
			t.Errorf("%s: forgotten are %v", name, over)
		}
	}
}

// The time starts anew when the pod is seen again, and for a new endpoint.
func TestForgottenIsForTheWholeTime(t *testing.T) {
	begin := time.Now()
	gone, there := &clusterPods{}, &clusterPods{uids: map[cluster.UID]bool{cluster.NewUID(uidOfServer): true}}
	endpoints := map[string]agentapi.Endpoint{"bl1": {Pod: agentapi.PodRef{Name: "web", UID: uidOfServer}}}
	for name, between := range map[string]func(f *forgotten){
		"there in between":   func(f *forgotten) { f.look(begin.Add(5*time.Minute), endpoints, there, noPackets) },
		"unknown in between": func(f *forgotten) { f.look(begin.Add(5*time.Minute), endpoints, nil, noPackets) },
		"made anew":          func(f *forgotten) { f.look(begin.Add(5*time.Minute), nil, gone, noPackets) },
		"without its device": func(f *forgotten) {
			f.look(begin.Add(5*time.Minute), endpoints, gone, func(string) (uint64, bool) { return 0, false })
		},
		"has sent a packet": func(f *forgotten) {
			f.look(begin.Add(5*time.Minute), endpoints, gone, func(string) (uint64, bool) { return 6, true })
		},
		"the agent was stopped": func(*forgotten) {},
	} {
		f := &forgotten{}
		looks(f, begin, 4*time.Minute, endpoints, gone)
		between(f)
		again := begin.Add(6 * time.Minute)
		if name == "the agent was stopped" {
			again = begin.Add(time.Hour)
		}
		if over := looks(f, again, forgottenAfter-time.Minute, endpoints, gone); len(over) > 0 {
			t.Errorf("%s: forgotten too early", name)
		}
		if over := looks(f, again.Add(forgottenAfter), 0, endpoints, gone); len(over) != 1 {
			t.Errorf("%s: not forgotten", name)
		}
	}
	// By the clock, which was set back, the new endpoint is older than the last state of the former one, or than the
	// agent.
	for _, added := range []time.Duration{5 * time.Minute, -time.Hour} {
		late := map[string]agentapi.Endpoint{"bl1": {Pod: agentapi.PodRef{Name: "web", UID: uidOfServer}, Added: begin.Add(added)}}
		f := &forgotten{}
		looks(f, begin, 4*time.Minute, endpoints, gone)
		if over := looks(f, begin.Add(5*time.Minute), forgottenAfter-time.Minute, late, gone); len(over) > 0 {
			t.Errorf("added after %s: forgotten too early", added)
		}
		if over := looks(f, begin.Add(5*time.Minute+forgottenAfter), 0, late, gone); len(over) != 1 {
			t.Errorf("added after %s: not forgotten", added)
		}
	}
	// An endpoint of an earlier agent, by a clock that was an hour ahead.
	future := map[string]agentapi.Endpoint{"bl1": {Pod: agentapi.PodRef{Name: "web", UID: uidOfServer}, Added: begin.Add(time.Hour).Round(0)}}
	if over := looks(&forgotten{}, begin, forgottenAfter, future, gone); len(over) != 1 {
		t.Error("an endpoint of the future is not forgotten")
	}
}

// manifests is a source that is no API server.
type manifests struct{ cluster.Source }

// remoteSource is a source that is reachable or not.
type remoteSource struct {
	cluster.Source
	out      bool
	problems []cluster.ObjectProblem
}

func (s remoteSource) Outages() (int, bool)                    { return 1, s.out }
func (s remoteSource) ObjectProblems() []cluster.ObjectProblem { return s.problems }

// A pod is gone only by a complete list of a reachable API server.
func TestClusterPodsAreKnown(t *testing.T) {
	unread := cluster.ObjectProblem{Kind: cluster.KindPod, Key: cluster.Key{Namespace: "shop", Name: "odd"}}
	whole := &cluster.Snapshot{Pods: cluster.ListOf(&cluster.Pod{Name: "web", UID: cluster.NewUID(uidOfServer), Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})}
	for name, c := range map[string]struct {
		source   cluster.Source
		snapshot *cluster.Snapshot
	}{
		"manifests":       {manifests{}, whole},
		"out of reach":    {remoteSource{out: true}, whole},
		"nothing is read": {remoteSource{}, nil},
		"no pods are":     {remoteSource{}, &cluster.Snapshot{Unknown: cluster.Kinds{cluster.KindPod}}},
	} {
		if pods := (&Endpoints{}).clusterPods(c.source, c.snapshot); pods != nil {
			t.Errorf("%s: pods are %+v", name, pods)
		}
	}
	here := map[string]agentapi.Endpoint{"bl1": {Pod: agentapi.PodRef{Name: "web", UID: uidOfServer}}}
	pods := (&Endpoints{all: here}).clusterPods(remoteSource{problems: []cluster.ObjectProblem{unread}}, whole)
	if pods == nil || !pods.has(agentapi.PodRef{Name: "web", UID: uidOfServer}) || !pods.has(agentapi.PodRef{Namespace: "shop", Name: "odd"}) || pods.has(agentapi.PodRef{Name: "web", UID: "other"}) {
		t.Errorf("pods are %+v", pods)
	}
}

// A pod that keeps sending does not keep its address for good.
func TestForgottenThoughItSends(t *testing.T) {
	endpoints := map[string]agentapi.Endpoint{"bl1": {Pod: agentapi.PodRef{Namespace: "shop", Name: "web", UID: uidOfServer}}}
	var f forgotten
	var packets uint64
	begin := time.Now()
	for at := time.Duration(0); at <= forgottenAtMost; at += time.Minute {
		over := f.look(begin.Add(at), endpoints, &clusterPods{}, func(string) (uint64, bool) { packets++; return packets, true })
		if want := at == forgottenAtMost; len(over) > 0 != want {
			t.Fatalf("after %s: forgotten are %v", at, over)
		}
	}
}
