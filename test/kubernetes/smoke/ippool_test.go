//go:build kubernetes

package smoke

import (
	"encoding/json"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// poolAnnotation is the annotation that names a pod's pool; poolNone as the name means the node's pod range.
const (
	poolAnnotation = "networking.beeline.dev/ippool"
	poolNone       = "none"
)

// testbedPools are the testbed's pools.
func testbedPools() []plan.Pool {
	c, _ := onTestbed()
	return c.Pools()
}

// poolNames are the kinds of pods in a cluster with pools: poolNone, and the pools.
func poolNames() []string {
	names := []string{poolNone}
	for _, p := range testbedPools() {
		names = append(names, p.Name)
	}
	return names
}

// inPool returns the annotations of a pod in that pool; none for the pool that the cluster gives it.
func inPool(name string) map[string]string {
	if name == "" {
		return nil
	}
	return map[string]string{poolAnnotation: name}
}

// ofRange is the pool of pods that need an address of their node's range.
func ofRange() string {
	if len(testbedPools()) == 0 {
		return ""
	}
	return poolNone
}

// anyPool chooses the pool of a pod in a cluster without a default pool, by its name: the fixtures have one of each kind,
// the others are spread. Elsewhere the cluster chooses.
func anyPool(pod string) string {
	pools := testbedPools()
	if len(pools) == 0 || slices.ContainsFunc(pools, func(p plan.Pool) bool { return p.Default }) {
		return ""
	}
	fixed := map[string]string{"a": plan.MacvlanPool, "b": poolNone, "remote": plan.RoutedPool}
	if name, is := fixed[pod]; is {
		return name
	}
	hash := fnv.New32()
	_, _ = hash.Write([]byte(pod)) // never fails
	names := poolNames()
	return names[int(hash.Sum32())%len(names)]
}

// poolWith is the name of the pool whose subnet has an address; empty for addresses of nodes' ranges.
func poolWith(a netip.Addr) string {
	for _, p := range testbedPools() {
		for _, ranges := range p.Ranges {
			if ranges.Contains(a) {
				return p.Name
			}
		}
	}
	return ""
}

// countInPools counts the addresses that are of pools.
func countInPools(addresses []netip.Addr) (count int) {
	for _, a := range addresses {
		if poolWith(a) != "" {
			count++
		}
	}
	return count
}

// ipClaims returns the nodes of the addresses that pods have of pools.
func ipClaims() (map[string]string, error) {
	claims := map[string]string{}
	if len(testbedPools()) == 0 {
		return claims, nil
	}
	output, err := kubectl("get", "ipclaims", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list v1alpha1.IPClaimList
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		return nil, err
	}
	for _, claim := range list.Items {
		claims[claim.Spec.Address] = claim.Spec.Node
	}
	return claims, nil
}
