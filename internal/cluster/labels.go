package cluster

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"unique"
)

// Labels is an immutable set of labels. Equal sets share their memory: the pods of a Deployment share one set. The
// zero value has no labels.
type Labels struct {
	// pairs is "key NUL value NUL …", sorted by key; neither keys nor values may contain NUL.
	pairs unique.Handle[string]
}

// NewLabels makes a set.
func NewLabels(labels map[string]string) Labels {
	if len(labels) == 0 {
		return Labels{}
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(key)
		b.WriteByte(0)
		b.WriteString(labels[key])
		b.WriteByte(0)
	}
	return Labels{unique.Make(b.String())}
}

// All gives each key with its value, sorted by key.
func (l Labels) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		if l == (Labels{}) {
			return
		}
		rest := l.pairs.Value()
		for rest != "" {
			var key, value string
			key, rest, _ = strings.Cut(rest, "\x00")
			value, rest, _ = strings.Cut(rest, "\x00")
			if !yield(key, value) {
				return
			}
		}
	}
}

// Get gives the value of a key.
func (l Labels) Get(key string) (value string, ok bool) {
	for k, v := range l.All() {
		if k == key {
			return v, true
		}
	}
	return "", false
}

// Equal reports whether two sets are the same.
func (l Labels) Equal(other Labels) bool { return l == other }

// String gives "key=value,…", as kubectl prints it.
func (l Labels) String() string {
	var all []string
	for k, v := range l.All() {
		all = append(all, k+"="+v)
	}
	return strings.Join(all, ",")
}

// Intern gives a string that shares its memory with equal ones. The same names of namespaces and nodes occur in tens
// of thousands of objects.
func Intern(s string) string {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
}
