package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// The latest snapshot waits, and answers for the time since the first one that nobody has taken.
func TestHandOverLatest(t *testing.T) {
	to := make(chan *cluster.Snapshot, 1)
	first, last := time.Unix(100, 0), time.Unix(200, 0)
	handOver(to, &cluster.Snapshot{Since: first})
	nodes := []cluster.Node{{Name: "a"}}
	handOver(to, &cluster.Snapshot{Since: last, Nodes: nodes})
	if got := <-to; got.Since != first || !cluster.Same(got.Nodes, nodes) {
		t.Errorf("got %+v", got)
	}
	handOver(to, &cluster.Snapshot{Since: last})
	if got := <-to; got.Since != last {
		t.Errorf("got %+v", got)
	}
}

// However many go at once, all of them are forgotten.
func TestNoGoneBackendIsLost(t *testing.T) {
	a := &Agent{connections: connections{wake: make(chan struct{}, 1)}}
	for port := range uint16(500) {
		a.backendsGone([]netip.AddrPort{netip.AddrPortFrom(addr("10.1.1.2"), port)})
	}
	<-a.connections.wake
	if got := a.connections.takeGone(); len(got) != 500 {
		t.Errorf("%d are left of 500", len(got))
	}
	if got := a.connections.takeGone(); len(got) != 0 {
		t.Errorf("%v are told of twice", got)
	}
}
