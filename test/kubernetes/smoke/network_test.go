//go:build kubernetes

package smoke

import "github.com/beeline-cni/beeline/test/kubernetes/plan"

// isBeeline tells whether the cluster was brought up with Beeline as its network.
func isBeeline() bool { return cluster.Cluster.Options.Network == plan.NetworkBeeline }
