//go:build kubernetes

package smoke

// isBeeline tells whether the cluster was brought up with Beeline as its network.
func isBeeline() bool { return cluster.Cluster.Options.Network == "beeline" }
