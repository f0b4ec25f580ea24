package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/beeline-cni/beeline/internal/cluster"
	beeline "github.com/beeline-cni/beeline/internal/cluster/apiserver"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// agent is what an agent writes claims with.
func agent(t *testing.T, url, node string) *beeline.Claims {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, Kubeconfig(url), 0o600); err != nil {
		t.Fatal(err)
	}
	source, _, err := beeline.New(beeline.Config{Kubeconfig: file, NodeName: node}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return source.Claims()
}

// Two agents write claims of the same address: each time one of them does not get it.
func TestClaimsOfAgents(t *testing.T) {
	_, url := startServer(t)
	ctx, a, b := t.Context(), agent(t, url, "n1"), agent(t, url, "n2")
	addr := netip.MustParseAddr("192.168.77.21")
	claim := func(node string) *cluster.IPClaim {
		return &cluster.IPClaim{Address: addr, Pool: "pods", Node: node, Namespace: "default", Pod: "client", PodUID: "1", ContainerID: "c", IfName: "eth0"}
	}
	first, err := a.Create(ctx, claim("n1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(ctx, claim("n2")); !errors.Is(err, cluster.ErrClaimExists) {
		t.Errorf("a second claim of the address: %v", err)
	}
	next := *first
	next.Node = "n2"
	second, err := b.Update(ctx, &next)
	if err != nil || second.Version == first.Version || second.UID != first.UID {
		t.Fatalf("%+v becomes %+v: %v", first, second, err)
	}
	if _, err := a.Update(ctx, first); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("an update of the version before: %v", err)
	}
	if err := a.Delete(ctx, first); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("a deletion of the version before: %v", err)
	}
	if now, err := a.Get(ctx, addr); err != nil || now == nil || *now != *second {
		t.Errorf("the claim is %+v, want %+v: %v", now, second, err)
	}
	if err := b.Delete(ctx, second); err != nil {
		t.Error(err)
	}
	if now, err := a.Get(ctx, addr); now != nil || err != nil {
		t.Errorf("the deleted claim is %+v: %v", now, err)
	}
	again, err := a.Create(ctx, claim("n1"))
	if err != nil || again.UID == first.UID {
		t.Fatalf("another claim of the address has the UID of the one before, %+v: %v", again, err)
	}
	again.UID = first.UID
	if err := a.Delete(ctx, again); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("a deletion of the claim before: %v", err)
	}
	if _, err := a.Update(ctx, again); !errors.Is(err, cluster.ErrClaimChanged) {
		t.Errorf("an update of the claim before: %v", err)
	}
}

// Of many agents that create the same claim at once one gets it, and all see it.
func TestClaimsOfManyAgents(t *testing.T) {
	s, url := startServer(t)
	addr := netip.MustParseAddr("fd77::21")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := index{make(chan string, 10)}
	go agent(t, url, "n0").Follow(ctx, seen)
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 8 {
		claims := agent(t, url, "n1")
		all.Go(func() {
			_, err := claims.Create(ctx, &cluster.IPClaim{Address: addr, Pool: "pods"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if !errors.Is(err, cluster.ErrClaimExists) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list := Objects[*v1alpha1.IPClaim](s); made != 1 || len(list) != 1 || list[0].Name != cluster.ClaimName(addr) {
		t.Fatalf("%d agents have made the claims %v", made, list)
	}
	for {
		select {
		case <-ctx.Done():
			t.Fatal("a watch does not see the claim")
		case name := <-seen.names:
			if name == cluster.ClaimName(addr) {
				return
			}
		}
	}
}

// index hears of claims.
type index struct{ names chan string }

func (i index) Set(c *cluster.IPClaim) { i.names <- c.Key().Name }
func (i index) Remove(netip.Addr)      {}
func (i index) Replace(all []*cluster.IPClaim) {
	for _, c := range all {
		i.Set(c)
	}
}

func TestStatusOfIPPools(t *testing.T) {
	s, url := startServer(t)
	put(t, s, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "pods", UID: "7"}, Spec: v1alpha1.IPPoolSpec{Subnets: []string{"192.168.77.0/24"}}})
	claims := agent(t, url, "n1")
	status := cluster.IPPoolStatus{Name: "pods", UID: "7", IPv4: &cluster.IPPoolCounts{Total: 10, Allocated: 4, Free: 6}}
	for range 2 { // the second time the conditions are those that there are
		if err := claims.WriteStatus(t.Context(), status); err != nil {
			t.Fatal(err)
		}
		pool := Objects[*v1alpha1.IPPool](s)[0]
		if pool.Status.Allocated != 4 || pool.Status.IPv4.Free != 6 || len(pool.Status.Conditions) != 3 || len(pool.Spec.Subnets) != 1 {
			t.Errorf("%+v", pool)
		}
	}
	status.UID, status.IPv4.Allocated = "8", 5
	if err := claims.WriteStatus(t.Context(), status); err == nil || Objects[*v1alpha1.IPPool](s)[0].Status.Allocated != 4 {
		t.Errorf("the status of an earlier pool is written: %v", err)
	}
	status.Name = "none"
	if err := claims.WriteStatus(t.Context(), status); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("the status of no pool: %v", err)
	}
	response, err := http.Post(url+"/apis/"+v1alpha1.SchemeGroupVersion.String()+"/ipclaims", "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("half an object: %s", response.Status)
	}
}

// Agents write the annotations of Nodes, and remove them; their conditions are not kept.
func TestAnnotationsOfNodes(t *testing.T) {
	s, url := startServer(t)
	put(t, s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"stays": "as it is"}}})
	patch := func(path, kind, body string) {
		t.Helper()
		request, err := http.NewRequest(http.MethodPatch, url+"/api/v1/nodes/n1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", kind)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", body, response.Status)
		}
	}
	expect := func(want map[string]string) {
		t.Helper()
		n := Objects[*corev1.Node](s)[0]
		if diff := cmp.Diff(want, n.Annotations); diff != "" || len(n.Status.Conditions) > 0 {
			t.Errorf("conditions %v, annotations (-want +got):\n%s", n.Status.Conditions, diff)
		}
	}
	patch("", string(types.MergePatchType), `{"metadata": {"annotations": {"key": "a", "other": "b"}}}`)
	patch("/status", string(types.StrategicMergePatchType), `{"status": {"conditions": [{"type": "Ready"}]}}`)
	expect(map[string]string{"stays": "as it is", "key": "a", "other": "b"})
	patch("", string(types.MergePatchType), `{"metadata": {"annotations": {"key": null}}}`)
	expect(map[string]string{"stays": "as it is", "other": "b"})
}

// flannel announces itself by a patch of its Node's status. The server keeps its annotations, and nothing of the status.
func TestAnnotationsOfStatusPatch(t *testing.T) {
	s, url := startServer(t)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"old": "1", "gone": "1"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	if err := s.Put(node); err != nil {
		t.Fatal(err)
	}
	patch := func(body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url+"/api/v1/nodes/n1/status", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", string(types.StrategicMergePatchType))
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		var got corev1.Node
		if err := json.NewDecoder(reply.Body).Decode(&got); err != nil || reply.StatusCode != http.StatusOK {
			t.Fatalf("status %d: %v", reply.StatusCode, err)
		}
		return fmt.Sprint(got.Annotations, " ", len(got.Status.Conditions))
	}
	if got := patch(`{"metadata":{"annotations":{"new":"2","gone":null}},"status":{"conditions":[]}}`); got != "map[new:2 old:1] 1" {
		t.Errorf("after a patch of annotations: %s", got)
	}
	if got := patch(`{"status":{"conditions":[]}}`); got != "map[new:2 old:1] 1" {
		t.Errorf("after a patch of the status alone: %s", got)
	}
}
