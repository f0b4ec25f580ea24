package service

import (
	"cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Problem is a reason why a Service, or the ports of a pod, do not work as the object says.
type Problem struct {
	// Pod says that Object is a Pod; otherwise it is a Service.
	Pod    bool
	Object cluster.Key
	// UID is that of a Service's object; empty if unknown.
	UID string
	// Local says that the problem is this node's: other nodes may not have it.
	Local bool
	// Text is one sentence that names the object.
	Text string
}

// String returns Text.
func (p Problem) String() string { return p.Text }

func (p Problem) compare(other Problem) int {
	return cmp.Or(cmp.Compare(p.Text, other.Text), p.Object.Compare(other.Object))
}

// problem makes a Problem of an owner.
func (o owner) problem(uid string, local bool, text string) Problem {
	return Problem{Pod: o.pod, Object: o.key, UID: uid, Local: local || o.pod, Text: text}
}
