package status

import (
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Exactly one node reports an object's problem that every node sees, another one when that is gone, and no node
// reports much more than others.
func TestOneNodeReports(t *testing.T) {
	var ready []string
	for i := range 50 {
		ready = append(ready, fmt.Sprintf("node-%d", i))
	}
	reports := map[string]int{}
	for i := range 5000 {
		key := cluster.Key{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		winner := ""
		for _, name := range ready {
			if Elected(name, ready, cluster.KindService, key) {
				if winner != "" {
					t.Fatalf("%s and %s both report %s", winner, name, key)
				}
				winner = name
			}
		}
		if winner == "" {
			t.Fatalf("no node reports %s", key)
		}
		reports[winner]++
	}
	for name, n := range reports {
		if n < 50 || n > 200 {
			t.Errorf("%s reports %d of 5000 objects, of 100 on average", name, n)
		}
	}
	if !Elected("any", nil, cluster.KindService, cluster.Key{}) {
		t.Error("no node reports while none is ready")
	}
	if Elected("unready", ready, cluster.KindService, cluster.Key{}) {
		t.Error("a node that is not ready reports")
	}
}
