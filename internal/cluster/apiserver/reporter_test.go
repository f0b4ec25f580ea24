package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// report runs a Source and its Reporter until the test ends.
func report(t *testing.T, server *fakeServer) (*Reporter, *running) {
	t.Helper()
	var reporter *Reporter
	r := run(t, server, func(s *Source) {
		reporter = newReporter(s.connection, "n1", s, slog.New(slog.DiscardHandler))
		reporter.interval = time.Millisecond
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- reporter.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	return reporter, r
}

// condition gives the network condition of the server's Node.
func (f *fakeServer) condition() Condition {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, ok := f.objects["nodes"]["/n1"].(*corev1.Node); ok {
		return readOwn(n).condition
	}
	return Condition{}
}

func (r *running) expectCondition(want Condition) {
	r.t.Helper()
	eventually(r.t, func() string { return fmt.Sprintf("condition is %+v, want %+v", r.server.condition(), want) },
		func() bool { return r.server.condition() == want })
}

func TestConditionIsWrittenWhenItChanges(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1, n2)
	reporter, r := report(t, server)
	r.expectState(n1n2)
	ready := Condition{Status: "False", Reason: "Ready", Message: "all is well"}
	for range 3 {
		reporter.Available(true, "Ready", "all is well")
		r.expectCondition(ready)
	}
	reporter.Available(false, "Broken", "nothing is")
	r.expectCondition(Condition{Status: "True", Reason: "Broken", Message: "nothing is"})
	reporter.Available(true, "Ready", "all is well")
	r.expectCondition(ready)
	if n := server.count("PATCH nodes/n1/status"); n != 3 {
		t.Errorf("%d patches for 3 changes: %q", n, server.patches)
	}
}

// A Node that is deleted and made anew gets its condition again.
func TestConditionOfANewNode(t *testing.T) {
	server := newFakeServer(t)
	reporter, r := report(t, server)
	reporter.Available(true, "Ready", "all is well")
	r.expectState("")
	if n := server.count("PATCH"); n != 0 {
		t.Errorf("%d patches without a Node", n)
	}
	for range 2 {
		server.put(n1)
		r.expectCondition(Condition{Status: "False", Reason: "Ready", Message: "all is well"})
		r.expectState("n1[10.1.1.0/24]")
		server.remove(n1)
		r.expectState("")
	}
}

func TestConditionIsWrittenAfterAnOutage(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1)
	reporter, r := report(t, server)
	r.expectState("n1[10.1.1.0/24]")
	server.setDown(true)
	reporter.Available(false, "Broken", "nothing is")
	r.expectProblem("cannot be reached")
	server.setDown(false)
	r.expectCondition(Condition{Status: "True", Reason: "Broken", Message: "nothing is"})
	r.expectProblem("")
}

// A change that the watch delivers after a patch was sent is not overwritten by the response, which may be older.
func TestWatchOverridesPatchResponse(t *testing.T) {
	for _, delivered := range []bool{false, true} {
		s := newSource(&connection{}, "n1", slog.New(slog.DiscardHandler))
		before, watched, answer := &ownNode{}, &ownNode{condition: Condition{Status: "True"}}, &ownNode{condition: Condition{Status: "False"}}
		s.nodes.own = before
		want := answer
		if delivered {
			s.nodes.own, want = watched, watched
		}
		if s.setOwn(before, answer); s.own() != want {
			t.Errorf("delivered by the watch: %t: the node's object is %+v, want %+v", delivered, s.own(), want)
		}
	}
}

// A condition that the server rejected is no problem once it is no longer wanted.
func TestRejectedConditionIsDropped(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1)
	reporter, r := report(t, server)
	r.expectState("n1[10.1.1.0/24]")
	reporter.Available(true, "Ready", "all is well")
	r.expectCondition(Condition{Status: "False", Reason: "Ready", Message: "all is well"})
	server.do(func() { server.refuse["nodes"] = http.StatusForbidden })
	reporter.Available(false, "Broken", "nothing is")
	r.expectProblem("refuses to patch")
	reporter.Available(true, "Ready", "all is well")
	r.expectProblem("")
}

func lost(kind cluster.Kind, namespace, name string) cluster.ObjectProblem {
	return cluster.ObjectProblem{Kind: kind, Key: cluster.Key{Namespace: namespace, Name: name}, UID: "uid", Text: "it is lost"}
}

// Repeated Events increment the count of the first, and their rate is limited.
func TestEvents(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1)
	reporter, r := report(t, server)
	r.expectState("n1[10.1.1.0/24]")
	reporter.NodeEvent("Broken", "a link is down")
	reporter.NodeEvent("Broken", "a link is down")
	reporter.ObjectEvent("Broken", lost(cluster.KindPod, "default", "p"))
	reporter.ObjectEvent("Broken", lost(cluster.KindNetworkPolicy, "shop", "web"))
	eventually(t, func() string { return fmt.Sprintf("requests are %q", server.requests) }, func() bool {
		return server.count("POST namespaces/default/events") == 2 && server.count("POST namespaces/shop/events") == 1 && server.count("PATCH namespaces/default/events/n1.") == 1
	})
	server.mu.Lock()
	counted := strings.Contains(strings.Join(server.patches, "\n"), `"count":2`)
	server.mu.Unlock()
	if !counted {
		t.Errorf("no event is counted up: %q", server.patches)
	}
	for i := range 100 {
		reporter.NodeEvent("Broken", fmt.Sprintf("link %d is down", i))
	}
	// Of the node's, two were one Event; two were about other objects, which have a limit of their own.
	const ofNode, ofOthers = eventBurst - 1, 2
	eventually(t, func() string { return fmt.Sprintf("requests are %q", server.requests) }, func() bool {
		return server.count("POST") == ofNode+ofOthers
	})
	for i := range 100 {
		reporter.ObjectEvent("Broken", lost(cluster.KindPod, "default", fmt.Sprintf("p%d", i)))
	}
	eventually(t, func() string { return fmt.Sprintf("requests are %q", server.requests) }, func() bool {
		return server.count("POST") == ofNode+eventBurst
	})
	reporter.NodeEvent("Broken", "one more")
	if n := server.count("POST"); n != ofNode+eventBurst {
		t.Errorf("%d events", n)
	}
}

// While nothing changes no request is sent.
func TestIdle(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1, n2, pod("a", "10.1.1.2"))
	reporter, r := report(t, server)
	reporter.Available(true, "Ready", "all is well")
	r.expectCondition(Condition{Status: "False", Reason: "Ready", Message: "all is well"})
	r.expect("everything", func(s *cluster.Snapshot) bool { return len(s.Unknown) == 0 })
	before := server.count("")
	time.Sleep(100 * time.Millisecond)
	if n := server.count(""); n != before || before != len(resources)+1 {
		t.Errorf("%d requests, %d of them later: %q", n, n-before, server.requests)
	}
}
