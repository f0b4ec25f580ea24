package agent

import (
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// The latest snapshot waits, with the time of the first one that was not taken.
func TestHandOverLatest(t *testing.T) {
	h := handover{ready: loop.NewSignal()}
	first, last := time.Unix(100, 0), time.Unix(200, 0)
	h.put(&cluster.Snapshot{Since: first})
	nodes := []cluster.Node{{Name: "a"}}
	h.put(&cluster.Snapshot{Since: last, Nodes: nodes})
	<-h.ready
	if got := h.take(); got.Since != first || !cluster.Same(got.Nodes, nodes) {
		t.Errorf("got %+v", got)
	}
	if got := h.take(); got != nil {
		t.Errorf("taken twice: %+v", got)
	}
	h.put(&cluster.Snapshot{Since: last})
	<-h.ready
	if got := h.take(); got.Since != last {
		t.Errorf("got %+v", got)
	}
}
