package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/reconcile"
)

// probe sends a probe as the kubelet does.
func probe(t *testing.T, a *Agent, path string, after time.Duration) (code int, said string) {
	t.Helper()
	mux := http.NewServeMux()
	a.addProbes(mux, func() time.Time { return time.Now().Add(after) })
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		answered <- w
	}()
	select {
	case w := <-answered:
		return w.Code, w.Body.String()
	case <-time.After(10 * time.Second):
		t.Fatalf("%s does not answer", path)
		return 0, ""
	}
}

// /healthz names a loop that hangs in its work, but not one that waits for work. Both probes respond while the
// agent's lock is held for good.
func TestProbes(t *testing.T) {
	a := &Agent{}
	var err error
	if a.reconciler, err = reconcile.New(reconcile.Options{Lock: &a.mu}); err != nil {
		t.Fatal(err)
	}
	idle, hangs := a.beats.Add("an idle loop"), a.beats.Add("the loop that hangs")
	idle.Round(func() {})
	if code, said := probe(t, a, "/healthz", 0); code != http.StatusOK {
		t.Errorf("/healthz gives %d: %s", code, said)
	}
	a.mu.Lock() // and never released
	if code, said := probe(t, a, "/readyz", 0); code != http.StatusServiceUnavailable || !strings.Contains(said, "not finished starting") {
		t.Errorf("/readyz gives %d: %s", code, said)
	}
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		hangs.Round(func() {
			close(begun)
			a.mu.Lock()
			a.mu.Unlock() //nolint:staticcheck // it is only waited for
		})
	}()
	<-begun
	if code, said := probe(t, a, "/healthz", 0); code != http.StatusOK {
		t.Errorf("/healthz gives %d for a new round: %s", code, said)
	}
	if code, said := probe(t, a, "/healthz", loop.StuckAfter+time.Second); code != http.StatusServiceUnavailable || !strings.Contains(said, "the loop that hangs has not completed") || strings.Contains(said, "idle") {
		t.Errorf("/healthz gives %d: %s", code, said)
	}
	a.mu.Unlock()
	<-done
	if err := a.beats.Stuck(time.Now()); err != nil {
		t.Errorf("when the round is over: %v", err)
	}
}
