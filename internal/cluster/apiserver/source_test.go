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
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// running is a Source that runs until the test ends.
type running struct {
	t         *testing.T
	server    *fakeServer
	source    *Source
	snapshots chan *cluster.Snapshot
	last      *cluster.Snapshot
	delivered int
}

func run(t *testing.T, server *fakeServer, adjust ...func(*Source)) *running {
	t.Helper()
	s := newSource(server.connection(), "n1", slog.New(slog.DiscardHandler))
	s.retry = func(int) time.Duration { return 5 * time.Millisecond }
	s.patience = time.Hour
	for _, a := range adjust {
		a(s)
	}
	r := &running{t: t, server: server, source: s, snapshots: make(chan *cluster.Snapshot)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- s.Run(ctx, func(s *cluster.Snapshot) {
			select {
			case r.snapshots <- s:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	return r
}

const limit = 20 * time.Second

// expect takes snapshots until one matches.
func (r *running) expect(what string, fits func(*cluster.Snapshot) bool) *cluster.Snapshot {
	r.t.Helper()
	deadline := time.After(limit)
	for {
		select {
		case s := <-r.snapshots:
			r.last = s
			r.delivered++
			if fits(s) {
				return s
			}
		case <-deadline:
			r.t.Fatalf("no snapshot: %s; the last is %s, problems %q, requests %q", what, describe(r.last), r.source.Problems(), r.server.requests)
		}
	}
}

// expectState takes snapshots until one has exactly these objects, as formatted by describe, and all kinds are known.
func (r *running) expectState(want string) *cluster.Snapshot {
	r.t.Helper()
	return r.expect(want, func(s *cluster.Snapshot) bool { return len(s.Unknown) == 0 && describe(s) == want })
}

// describe formats nodes with their ranges and pods with their addresses.
func describe(s *cluster.Snapshot) string {
	if s == nil {
		return "nothing"
	}
	var all []string
	for _, n := range s.Nodes {
		all = append(all, n.Name+fmt.Sprint(n.PodCIDRs))
	}
	for p := range s.Pods.All() {
		all = append(all, p.Key().String()+fmt.Sprint(p.Addresses))
	}
	return strings.Join(all, " ")
}

// eventually waits for a condition that no snapshot shows.
func eventually(t *testing.T, what func() string, fits func() bool) {
	t.Helper()
	for begin := time.Now(); !fits(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > limit {
			t.Fatal(what())
		}
	}
}

func (r *running) expectProblem(text string) {
	r.t.Helper()
	eventually(r.t, func() string { return fmt.Sprintf("problems are %q, want %q", r.source.Problems(), text) }, func() bool {
		all := strings.Join(r.source.Problems(), "\n")
		return text == "" && all == "" || text != "" && strings.Contains(all, text)
	})
}

func node(name, address string, cidrs ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDRs: cidrs},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
}

func pod(name, address string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{NodeName: "n1"}}
	if address != "" {
		p.Status.PodIPs = []corev1.PodIP{{IP: address}}
	}
	return p
}

var (
	n1 = node("n1", "192.0.2.1", "10.1.1.0/24")
	n2 = node("n2", "192.0.2.2", "10.1.2.0/24")
)

const n1n2 = "n1[10.1.1.0/24] n2[10.1.2.0/24]"

// bothServers runs a test with a server that streams lists and with one that is older.
func bothServers(t *testing.T, test func(*testing.T, *fakeServer)) {
	for name, old := range map[string]bool{"streamed lists": false, "pages": true} {
		t.Run(name, func(t *testing.T) {
			server := newFakeServer(t)
			server.old = old
			test(t, server)
		})
	}
}

func TestObjectsComeChangeAndGo(t *testing.T) {
	bothServers(t, func(t *testing.T, server *fakeServer) {
		server.put(n2, n1, pod("b", "10.1.1.3"))
		r := run(t, server)
		r.expectState(n1n2 + " default/b[10.1.1.3]")
		server.put(pod("a", ""))
		r.expectState(n1n2 + " default/a[] default/b[10.1.1.3]")
		server.put(pod("a", "10.1.1.2"))
		r.expectState(n1n2 + " default/a[10.1.1.2] default/b[10.1.1.3]")
		server.remove(pod("b", ""))
		server.remove(n2)
		r.expectState("n1[10.1.1.0/24] default/a[10.1.1.2]")
		r.expectProblem("")
	})
}

func TestEveryKindArrives(t *testing.T) {
	server := newFakeServer(t)
	meta := metav1.ObjectMeta{Namespace: "default", Name: "x"}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "x"}
	server.put(n1, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, pod("p", ""),
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}, slice, &networkingv1.NetworkPolicy{ObjectMeta: meta},
		&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: v1alpha1.IPPoolSpec{Subnets: []string{"192.0.2.0/24"}}})
	s := run(t, server).expect("one object of each kind", func(s *cluster.Snapshot) bool { return len(s.Unknown) == 0 })
	for kind, count := range s.Counts() {
		if count != 1 {
			t.Errorf("%d objects of kind %s", count, kind)
		}
	}
	for _, r := range resources {
		if server.count("WATCH "+r.name) != 1 || server.count("LIST "+r.name) != 0 {
			t.Errorf("%s: requests are %q", r.name, server.requests)
		}
	}
	if want := "labelSelector=%21service.kubernetes.io"; !strings.Contains(strings.Join(server.requests, "\n"), want) {
		t.Errorf("Services are listed without a selector: %q", server.requests)
	}
}

// A list with more objects than a page is read completely from a server that cannot stream it.
func TestPages(t *testing.T) {
	server := newFakeServer(t)
	server.old = true
	for i := range 2*pageSize + 1 {
		server.put(pod(fmt.Sprintf("p%d", i), ""))
	}
	r := run(t, server)
	r.expect("all pods", func(s *cluster.Snapshot) bool { return s.Pods.Len() == 2*pageSize+1 })
	if n := server.count("LIST pods"); n != 3 {
		t.Errorf("%d pages", n)
	}
}

// Changes while a watch is broken are not lost, and nothing is listed again.
func TestWatchBreaks(t *testing.T) {
	bothServers(t, func(t *testing.T, server *fakeServer) {
		server.put(n1, n2, pod("a", "10.1.1.2"), pod("b", "10.1.1.3"))
		r := run(t, server)
		r.expectState(n1n2 + " default/a[10.1.1.2] default/b[10.1.1.3]")
		// A watch that breaks at once, without an event, is followed by a list.
		server.put(pod("b", "10.1.1.7"))
		r.expectState(n1n2 + " default/a[10.1.1.2] default/b[10.1.1.7]")
		lists := server.count("LIST pods")
		server.setDown(true)
		server.put(pod("c", "10.1.1.4"))
		server.put(pod("a", "10.1.1.9"))
		server.remove(pod("b", ""))
		server.setDown(false)
		r.expectState(n1n2 + " default/a[10.1.1.9] default/c[10.1.1.4]")
		if n := server.count("LIST pods"); n != lists {
			t.Errorf("pods were listed again, %d times", n-lists)
		}
		server.mu.Lock()
		defer server.mu.Unlock()
		initial := 0
		for _, request := range server.requests {
			if strings.HasPrefix(request, "WATCH pods") && strings.Contains(request, "sendInitialEvents") {
				initial++
			}
		}
		if initial > 1 {
			t.Errorf("pods were streamed again: %q", server.requests)
		}
	})
}

// After the server compacted its history everything is listed, and missing objects are deleted.
func TestHistoryIsForgotten(t *testing.T) {
	bothServers(t, func(t *testing.T, server *fakeServer) {
		server.put(n1, n2, pod("a", "10.1.1.2"), pod("b", "10.1.1.3"))
		r := run(t, server)
		before := r.expectState(n1n2 + " default/a[10.1.1.2] default/b[10.1.1.3]")
		server.setDown(true)
		server.remove(pod("b", ""))
		server.remove(n2)
		server.put(pod("c", "10.1.1.4"))
		server.forget()
		server.setDown(false)
		after := r.expectState("n1[10.1.1.0/24] default/a[10.1.1.2] default/c[10.1.1.4]")
		if before.Pods.Slice()[0] != after.Pods.Slice()[0] {
			t.Error("a pod that did not change is another object")
		}
	})
}

func TestOutage(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1, n2)
	r := run(t, server)
	r.expectState(n1n2)
	server.setDown(true)
	r.expectProblem("the API server " + server.http.URL + " cannot be reached since ")
	if count, now := r.source.Outages(); count != 1 || !now {
		t.Errorf("%d outages, one now: %t", count, now)
	}
	server.setDown(false)
	r.expectProblem("")
	server.put(node("n3", "192.0.2.3"))
	r.expectState(n1n2 + " n3[]")
	if count, now := r.source.Outages(); count != 1 || now {
		t.Errorf("%d outages, one now: %t", count, now)
	}
}

// A source that starts during an outage delivers an incomplete snapshot, and a complete one afterwards.
func TestStartDuringOutage(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1, n2)
	server.setDown(true)
	r := run(t, server, func(s *Source) { s.patience = time.Millisecond })
	s := r.expect("an incomplete one", func(*cluster.Snapshot) bool { return true })
	if !s.Incomplete || len(s.Unknown) != len(cluster.AllKinds) || len(s.Nodes) != 0 {
		t.Errorf("snapshot is %+v", s)
	}
	server.setDown(false)
	if s := r.expectState(n1n2); s.Incomplete {
		t.Error("with everything known the snapshot is incomplete")
	}
}

// A kind that may not be read is named and does not block the others.
func TestForbidden(t *testing.T) {
	server := newFakeServer(t)
	server.refuse["networkpolicies"] = http.StatusForbidden
	server.put(n1)
	r := run(t, server)
	s := r.expect("all but one kind", func(s *cluster.Snapshot) bool { return len(s.Unknown) == 1 && s.Unknown.Has(cluster.KindNetworkPolicy) })
	if s.Incomplete {
		t.Error("nodes are incomplete")
	}
	r.expectProblem("the API server refuses to list and watch networkpolicies since ")
	server.do(func() { delete(server.refuse, "networkpolicies") })
	r.expect("all kinds", func(s *cluster.Snapshot) bool { return len(s.Unknown) == 0 })
	r.expectProblem("")
}

func TestWrongObjectKeepsItsLastGoodState(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1, n2, pod("a", "10.1.1.2"))
	r := run(t, server)
	r.expectState(n1n2 + " default/a[10.1.1.2]")

	server.put(node("n2", "192.0.2.2", "10.1.2.1/24"))
	r.expectProblem("Node n2: spec.podCIDRs[0]: 10.1.2.1/24 has host bits")
	server.put(pod("a", "127.0.0.1"))
	r.expectProblem("Pod default/a: status.podIPs[0].ip: 127.0.0.1 cannot be the address of a pod")
	server.put(node("n3", "192.0.2.3", "10.1.0.0/16"))
	r.expectProblem("Node n3: spec.podCIDRs[0]: pod range overlaps (10.1.0.0/16 and 10.1.1.0/24) with that of Node n1")
	server.put(node("n4", "192.0.2.4", "10.1.4.0/24"))
	r.expectState(n1n2 + " n4[10.1.4.0/24] default/a[10.1.1.2]")

	server.put(n2, pod("a", "10.1.1.7"))
	server.remove(node("n3", ""))
	r.expectState(n1n2 + " n4[10.1.4.0/24] default/a[10.1.1.7]")
	r.expectProblem("")
}

// A node that was invalid from the start may have been valid for an earlier agent.
func TestIncompleteWhileANodeWasNeverRight(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1, node("n2", "192.0.2.2", "10.1.2.1/24"))
	r := run(t, server)
	if s := r.expectState("n1[10.1.1.0/24]"); !s.Incomplete {
		t.Error("the snapshot is complete")
	}
	server.put(n2)
	if s := r.expectState(n1n2); s.Incomplete {
		t.Error("the snapshot is incomplete")
	}
	server.put(node("n5", "nowhere"))
	r.expectProblem("Node n5: status.addresses[0].address")
	server.put(pod("a", ""))
	if s := r.expectState(n1n2 + " default/a[]"); s.Incomplete {
		t.Error("a node that came later makes the snapshot incomplete")
	}
}

// What did not change is the same slice and the same object, and an irrelevant change is no change.
func TestUnchangedIsTheSame(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1, n2, pod("a", "10.1.1.2"))
	r := run(t, server)
	before := r.expectState(n1n2 + " default/a[10.1.1.2]")
	delivered := r.delivered
	heartbeat := n1.DeepCopy()
	heartbeat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	ready := pod("a", "10.1.1.2")
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	server.put(heartbeat, ready)
	server.put(pod("b", "10.1.1.3"))
	after := r.expectState(n1n2 + " default/a[10.1.1.2] default/b[10.1.1.3]")
	if !cluster.Same(before.Nodes, after.Nodes) || before.Pods.Same(after.Pods) {
		t.Error("nodes are another slice, or pods the same")
	}
	if before.Pods.Slice()[0] != after.Pods.Slice()[0] {
		t.Error("a pod that did not change is another object")
	}
	if r.delivered > delivered+1 {
		t.Errorf("%d snapshots for one change", r.delivered-delivered)
	}
	if after.Since.IsZero() {
		t.Error("a change without a time")
	}
}

// While a reader is busy changes coalesce.
func TestBurstIsOneSnapshot(t *testing.T) {
	server := newFakeServer(t)
	server.put(n1)
	r := run(t, server)
	r.expectState("n1[10.1.1.0/24]")
	delivered := r.delivered
	const many = 300
	for i := range many {
		server.put(pod(fmt.Sprintf("p%d", i), ""))
	}
	r.expect("all pods", func(s *cluster.Snapshot) bool { return s.Pods.Len() == many })
	if n := r.delivered - delivered; n > many/3 {
		t.Errorf("%d snapshots for a burst of %d changes", n, many)
	}
}

// A single change is delivered after a moment; a stream of changes makes few snapshots.
func TestCoalesce(t *testing.T) {
	for since, want := range map[time.Duration]time.Duration{
		time.Hour:                   promptTime,
		coalesceTime:                promptTime,
		coalesceTime - promptTime/2: promptTime,
		coalesceTime / 2:            coalesceTime / 2,
		0:                           coalesceTime,
	} {
		if got := coalesce(since); got != want {
			t.Errorf("%v after a snapshot: %v, want %v", since, got, want)
		}
	}
}
