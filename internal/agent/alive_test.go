package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agentapi"
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
	a := &Agent{failure: errNotReady}
	a.updateReadiness()
	idle, hangs := a.beats.Add("an idle loop"), a.beats.Add("the loop that hangs")
	idle.Round(func() {})
	if code, said := probe(t, a, "/healthz", 0); code != http.StatusOK {
		t.Errorf("/healthz gives %d: %s", code, said)
	}
	a.mu.Lock() // and never released
	if code, said := probe(t, a, "/readyz", 0); code != http.StatusServiceUnavailable || !strings.Contains(said, "not finished starting") {
		t.Errorf("/readyz gives %d: %s", code, said)
	}
	a.failure = nil
	a.updateReadiness()
	if code, said := probe(t, a, "/readyz", 0); code != http.StatusOK {
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

// afterStep is a time of this process after the system clock was set: wall-clock time has changed, monotonic time has
// not.
func afterStep(t *testing.T, now time.Time, by time.Duration) time.Time {
	t.Helper()
	const wall, ext, seconds = 0, 1, 30 // the fields of time.Time: seconds since 1885 begin at that bit of the first, and the second is monotonic
	fields := (*[2]int64)(unsafe.Pointer(&now))
	before := now
	fields[wall] += int64(by/time.Second) << seconds
	if now.Sub(before) != 0 || now.Round(0).Sub(before.Round(0)) != by || fields[ext] == 0 {
		t.Fatalf("%v is not %v after a step of %s", now, before, by)
	}
	return now
}

// Endpoints stay in the order in which they were added, also after the clock was set back and they were read from
// files.
func TestEndpointsAreInOrder(t *testing.T) {
	now := time.Now()
	a := &Agent{endpoints: map[string]agentapi.Endpoint{"bl1": {Added: now.Round(0)}, "bl2": {Added: now.Add(-time.Minute).Round(0)}, "bl3": {}}}
	for _, at := range []time.Time{now.Add(-time.Hour), afterStep(t, now, -time.Hour), now, now.Add(time.Hour), now} {
		added := a.nextAdded(at)
		for _, e := range a.endpoints {
			if !added.After(e.Added) {
				t.Errorf("added at %s, after one of %s", added, e.Added)
			}
		}
		var read agentapi.Endpoint
		if text, err := json.Marshal(agentapi.Endpoint{Added: added}); err != nil || json.Unmarshal(text, &read) != nil || !read.Added.Equal(added) {
			t.Errorf("%s is %s in a file", added, read.Added)
		}
		a.endpoints[added.String()] = agentapi.Endpoint{Added: added}
	}
}
