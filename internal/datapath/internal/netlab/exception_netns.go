package netlab

import (
	"fmt"
	"testing"
	"time"
)

// AwaitDropped waits until the counters of a node are want: nothing less and nothing else.
func (n *Network) AwaitDropped(t *testing.T, node *Node, want map[string]uint64) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		got := node.Dropped(t)
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("node %s dropped %v, expected %v", node.V4, got, want)
		}
		time.Sleep(time.Millisecond)
	}
}
