package status

import (
	"hash/fnv"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Elected reports whether this node reports a problem of an object that every node sees. All nodes agree without
// communication: each ready node has a number for each object (rendezvous hashing), and the highest one reports. If
// no node is ready, all report.
func Elected(self string, ready []string, kind cluster.Kind, key cluster.Key) bool {
	best, most := "", uint64(0)
	for _, name := range ready {
		h := fnv.New64a()
		for _, part := range []string{name, string(kind), key.Namespace, key.Name} {
			_, _ = h.Write([]byte(part))
			_, _ = h.Write([]byte{0})
		}
		if n := mixed(h.Sum64()); best == "" || n > most || n == most && name < best {
			best, most = name, n
		}
	}
	return best == "" || best == self
}

// mixed spreads a hash over all bits (the finalizer of MurmurHash3): names of nodes differ in their last digits.
func mixed(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}
