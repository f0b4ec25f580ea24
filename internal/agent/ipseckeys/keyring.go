package ipseckeys

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// retireFor is how long a key that is not in the file any more stays in use: by then all nodes have the new file. The kubelet
// updates the files of a Secret within about a minute.
const retireFor = 10 * time.Minute

// keyring is the keys in use: of the file, and what has just left it.
type keyring struct {
	keys []Key
	// retired is since when a key is not in the file.
	retired map[Generation]time.Time
}

// update takes over the keys of the file. Keys cannot change within a generation: two nodes would not notice that they differ.
func (r *keyring) update(file []Key, now time.Time) error {
	for _, k := range file {
		if i := r.index(k.Generation); i >= 0 && (r.keys[i].Bits != k.Bits || !bytes.Equal(r.keys[i].Secret, k.Secret)) {
			return fmt.Errorf("generation %d has another cipher or secret than before: give the new key a higher generation", k.Generation)
		}
	}
	keys, retired := slices.Clone(file), map[Generation]time.Time{}
	for _, k := range r.keys {
		if slices.ContainsFunc(file, func(other Key) bool { return other.Generation == k.Generation }) {
			continue
		}
		since, before := r.retired[k.Generation]
		if !before {
			since = now
		}
		if now.Sub(since) < retireFor && len(keys) < 2*generationsMax {
			keys, retired[k.Generation] = append(keys, k), since
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return int(int64(b.Generation) - int64(a.Generation)) })
	r.keys, r.retired = keys, retired
	return nil
}

func (r *keyring) index(g Generation) int {
	return slices.IndexFunc(r.keys, func(k Key) bool { return k.Generation == g })
}

// generations are those of the keys, the highest first.
func (r *keyring) generations() (all []Generation) {
	for _, k := range r.keys {
		all = append(all, k.Generation)
	}
	return all
}
