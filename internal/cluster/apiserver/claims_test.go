package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/ipclaim"
)

var (
	_ ipclaim.Store = &Claims{}
	_ ipclaim.Facts = &Claims{}
)

func claimsOf(server *fakeServer) *Claims {
	return newSource(server.connection(), "n1", slog.New(slog.DiscardHandler)).Claims()
}

// A claim comes back as it was written, and only who has seen its last state may change it.
func TestClaims(t *testing.T) {
	claims := claimsOf(newFakeServer(t))
	want := &cluster.IPClaim{
		Address: netip.MustParseAddr("2001:db8::7"), Pool: "office", Node: "n1", Namespace: "shop", Pod: "web-0", PodUID: "u-1",
		StatefulSet: "web", ContainerID: "c1", IfName: "eth0",
	}
	made, err := claims.Create(t.Context(), want)
	if err != nil || made.UID == "" || made.Version == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := claims.Create(t.Context(), want); !errors.Is(err, cluster.ErrClaimExists) {
		t.Errorf("an address is allocated twice: %v", err)
	}
	next := *made
	next.ContainerID, next.Conflict, next.ConflictReason = "c2", time.Unix(1e9, 0).UTC(), "02:00:00:00:00:01 has replied"
	updated, err := claims.Update(t.Context(), &next)
	if err != nil {
		t.Fatal(err)
	}
	got, err := claims.Get(t.Context(), want.Address)
	next.Version = got.Version
	if diff := cmp.Diff(&next, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("%v, (-written +read):\n%s", err, diff)
	}
	if _, err := claims.Update(t.Context(), made); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("an update of an older state: %v", err)
	}
	if err := claims.Delete(t.Context(), made); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("a deletion of an older state: %v", err)
	}
	if err := errors.Join(claims.Delete(t.Context(), updated), claims.Delete(t.Context(), updated)); err != nil {
		t.Errorf("deleting it, and again: %v", err)
	}
	if got, err := claims.Get(t.Context(), want.Address); got != nil || err != nil {
		t.Errorf("after the deletion: %+v, %v", got, err)
	}
	if _, err := claims.Update(t.Context(), updated); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("an update of a deleted claim: %v", err)
	}
}

// The server's time of a claim decides between its pod and a Node.
func TestClaimCreated(t *testing.T) {
	created := time.Unix(1e9, 0).UTC()
	full := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Name: "192-0-2-1", CreationTimestamp: metav1.NewTime(created)}}
	if c, err := reduceClaim(full); err != nil || c.Created != created {
		t.Errorf("%+v, %v", c, err)
	}
}

// claimMap is an index.
type claimMap struct{ changes chan string }

func (m claimMap) Replace(all []*cluster.IPClaim) {
	for _, c := range all {
		m.changes <- "list " + c.Address.String()
	}
	m.changes <- "listed"
}
func (m claimMap) Set(c *cluster.IPClaim) { m.changes <- c.Address.String() + " of " + c.Pod }
func (m claimMap) Remove(a netip.Addr)    { m.changes <- a.String() + " is free" }
func (m claimMap) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-m.changes:
			if got != w {
				t.Errorf("%q, want %q", got, w)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing comes, want %q", w)
		}
	}
}

// An index follows all claims. Objects whose names are no addresses are left out.
func TestFollowClaims(t *testing.T) {
	bothServers(t, func(t *testing.T, server *fakeServer) {
		claims := claimsOf(server)
		first, err := claims.Create(t.Context(), &cluster.IPClaim{Address: netip.MustParseAddr("192.0.2.1"), Pod: "a"})
		if err != nil {
			t.Fatal(err)
		}
		server.put(&v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Name: "office"}, Spec: v1alpha1.IPClaimSpec{Address: "192.0.2.9"}})
		ctx, cancel := context.WithCancel(t.Context())
		index, done := claimMap{make(chan string, 10)}, make(chan bool)
		go func() {
			claims.Follow(ctx, index)
			close(done)
		}()
		index.expect(t, "list 192.0.2.1", "listed")
		if _, err := claims.Create(t.Context(), &cluster.IPClaim{Address: netip.MustParseAddr("192.0.2.2"), Pod: "b"}); err != nil {
			t.Fatal(err)
		}
		if err := claims.Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		index.expect(t, "192.0.2.2 of b", "192.0.2.1 is free")
		cancel()
		<-done
	})
}

// What a claim is for is asked of the server.
func TestClaimFacts(t *testing.T) {
	server := newFakeServer(t)
	replicas, dead := int32(3), n2.DeepCopy()
	dead.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	web := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Ordinals: &appsv1.StatefulSetOrdinals{Start: 2}}}
	p := pod("web-2", "")
	p.UID = "b59a9d38-4e43-4ba9-a5f0-5a5d1d7b7a11"
	server.put(n1, dead, p, web)
	claims := claimsOf(server)
	got, err := claims.Pod(t.Context(), cluster.Key{Namespace: "default", Name: "web-2"})
	if err != nil || got.UID != cluster.NewUID(string(p.UID)) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := claims.Pod(t.Context(), cluster.Key{Namespace: "default", Name: "web-3"}); got != nil || err != nil {
		t.Errorf("a pod that does not exist: %+v, %v", got, err)
	}
	for name, want := range map[string]bool{"n1": false, "n2": true, "n3": true} {
		if gone, err := claims.NodeGone(t.Context(), name); gone != want || err != nil {
			t.Errorf("%s is gone: %v, %v", name, gone, err)
		}
	}
	if first, count, err := claims.Ordinals(t.Context(), cluster.Key{Namespace: "default", Name: "web"}); first != 2 || count != 3 || err != nil {
		t.Errorf("%d from %d, %v", count, first, err)
	}
	if _, count, err := claims.Ordinals(t.Context(), cluster.Key{Namespace: "default", Name: "db"}); count != 0 || err != nil {
		t.Errorf("a StatefulSet that does not exist has %d pods, %v", count, err)
	}
	server.do(func() { server.refuse["namespaces"] = http.StatusInternalServerError })
	if _, err := claims.Pod(t.Context(), cluster.Key{Namespace: "default", Name: "web-3"}); err == nil {
		t.Error("a pod is gone because the server fails")
	}
}

// A server without the kind has no pools; an agent whose role lacks it says so.
func TestServerWithoutPools(t *testing.T) {
	for code, problem := range map[int]string{http.StatusNotFound: "", http.StatusForbidden: "refuses to list and watch ippools"} {
		server := newFakeServer(t)
		server.put(n1)
		server.do(func() { server.refuse["ippools"] = code })
		r := run(t, server)
		if s := r.expect("all kinds", func(s *cluster.Snapshot) bool { return len(s.Unknown) == 0 }); len(s.IPPools) != 0 {
			t.Errorf("%d: %+v", code, s.IPPools)
		}
		r.expectProblem(problem)
	}
}

// The status of a pool has the counts of the family with fewer free addresses, and conditions that change when their
// status does.
func TestWriteStatus(t *testing.T) {
	server := newFakeServer(t)
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "office", UID: "u-1"}, Spec: v1alpha1.IPPoolSpec{Subnets: []string{"192.0.2.0/24"}}}
	server.put(pool)
	claims := claimsOf(server)
	status := cluster.IPPoolStatus{Name: "office", UID: "u-1", IPv4: &cluster.IPPoolCounts{Total: 9, Allocated: 2, Free: 7}, IPv6: &cluster.IPPoolCounts{Total: 1, Allocated: 1}}
	read := func() (v1alpha1.IPPoolStatus, map[string]metav1.Condition) {
		server.mu.Lock()
		defer server.mu.Unlock()
		got, all := server.objects["ippools"]["/office"].(*v1alpha1.IPPool).Status, map[string]metav1.Condition{}
		for _, c := range got.Conditions {
			all[c.Type] = c
		}
		return got, all
	}
	for range 2 {
		if err := claims.WriteStatus(t.Context(), status); err != nil {
			t.Fatal(err)
		}
	}
	got, conditions := read()
	if got.Total != 1 || got.Allocated != 1 || got.Free != 0 || got.IPv4.Free != 7 || got.IPv6.Free != 0 {
		t.Errorf("counts: %+v", got)
	}
	if c := conditions["Exhausted"]; c.Status != metav1.ConditionTrue || c.Message != "no IPv6 address is free" || len(conditions) != 3 || conditions["Valid"].Status != metav1.ConditionTrue {
		t.Errorf("conditions: %+v", conditions)
	}
	if n := server.count("PATCH ippools/office/status"); n != 3 {
		t.Errorf("%d patches for two writes with one change of conditions, want 3", n)
	}
	status.IPv6, status.Overlaps, status.Invalid = nil, "IPPool a has a part of its addresses", "spec.vlan: no"
	if err := claims.WriteStatus(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	got, conditions = read()
	if got.Total != 9 || got.IPv6 != nil || conditions["Exhausted"].Status != metav1.ConditionFalse || conditions["Overlapping"].Message != status.Overlaps || conditions["Valid"].Status != metav1.ConditionFalse {
		t.Errorf("%+v", got)
	}
}
