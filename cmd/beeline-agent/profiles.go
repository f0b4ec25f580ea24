//go:build pprof

package main

import (
	"net/http"
	_ "net/http/pprof" // serves profiles
)

// With the build tag pprof the agent serves profiles to its own node, for test/kubernetes/scale.
func init() {
	go func() { _ = http.ListenAndServe("127.0.0.1:6060", nil) }() //nolint:gosec // for measurements only
}
