package service

import (
	"cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Problem is a reason why a Service, or the ports of a pod, do not work as the object says.
type Problem struct {
	// ObjectProblem is that of a Service, or of a Pod, without its UID.
	cluster.ObjectProblem
	// Local says that the problem is this node's: other nodes may not have it.
	Local bool
}

func (p Problem) compare(other Problem) int {
	return cmp.Or(cmp.Compare(p.Text, other.Text), p.Key.Compare(other.Key))
}

// problem makes a Problem of an owner.
func (o owner) problem(uid string, local bool, text string) Problem {
	kind := cluster.KindService
	if o.pod {
		kind = cluster.KindPod
	}
	return Problem{ObjectProblem: cluster.ObjectProblem{Kind: kind, Key: o.key, UID: uid, Text: text}, Local: local || o.pod}
}
