package table

// Diff returns the entries to write and the keys to delete that turn the table `have` into `want`.
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
