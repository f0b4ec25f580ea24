package netlab

import (
	"testing"
)

func (n *Node) Close(t *testing.T) {
	t.Helper()
	if err := n.D.Close(); err != nil {
		t.Fatal(err)
	}
}
