package table

// Diff gives what turns the table `have` into `want`: entries to write and keys to delete.
func Diff[K comparable, V comparable](have, want map[K]V) (set map[K]V, del []K) {
	set = map[K]V{}
	for k, v := range want {
		if old, ok := have[k]; !ok || old != v {
			set[k] = v
		}
	}
	for k := range have {
		if _, ok := want[k]; !ok {
			del = append(del, k)
		}
	}
	return set, del
}
