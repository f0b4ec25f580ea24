package policy

import (
	"net/netip"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Local is what a node knows of itself, beside the snapshot.
type Local struct {
	// Addresses are the node's own. Those that the snapshot's Node has need not be among them.
	Addresses []netip.Addr
	// Pods are those with an interface here, each once: an old one and a new one of one name are two, told apart by UID. Where the snapshot
	// has other addresses for them, these hold.
	Pods []LocalPod
	// Unlabelled says that a pod without a Pod in the snapshot has none and never will, hence no labels; as with manifests. Otherwise
	// its Pod is still to come, and till then the pod is closed where policies of its namespace that may select it isolate.
	Unlabelled bool
}

// LocalPod is a pod of this node.
type LocalPod struct {
	Pod cluster.Key
	// UID is what the runtime calls it by. A Pod with another one is not its, but that of an earlier pod of the same name. Empty
	// is not known, and any Pod of that name is its.
	UID string
	// Nameless says that Pod is made up: of the pod no more than its addresses is known here.
	Nameless bool
	// Addresses are those of all interfaces of the pod, and of all sandboxes that are not to be told apart: policies hold for each of them.
	Addresses []netip.Addr
}

// Problem is something that keeps a NetworkPolicy from being in force as it is meant, or pods from being told apart.
type Problem struct {
	// Policy is the NetworkPolicy that it is about, with its UID; empty if it is about no policy.
	Policy cluster.Key
	UID    string
	// Pods are those of this node that are concerned, sorted.
	Pods []cluster.Key
	// Text is a sentence that names what it is about.
	Text string
}
