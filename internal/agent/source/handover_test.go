package source

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// The latest snapshot waits, with the time of the first one that was not taken.
func TestHandOverLatest(t *testing.T) {
	h := NewHandover()
	first, last := time.Unix(100, 0), time.Unix(200, 0)
	h.Put(&cluster.Snapshot{Since: first})
	nodes := []cluster.Node{{Name: "a"}}
	h.Put(&cluster.Snapshot{Since: last, Nodes: nodes})
	<-h.Ready
	if got := h.Take(); got.Since != first || !cluster.Same(got.Nodes, nodes) {
		t.Errorf("got %+v", got)
	}
	if got := h.Take(); got != nil {
		t.Errorf("taken twice: %+v", got)
	}
	h.Put(&cluster.Snapshot{Since: last})
	<-h.Ready
	if got := h.Take(); got.Since != last {
		t.Errorf("got %+v", got)
	}
}
