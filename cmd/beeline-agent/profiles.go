//go:build pprof

package main

import (
	"net/http"
	_ "net/http/pprof" // serves profiles
)

// An agent that is built with the tag pprof serves profiles of itself to its own node: test/kubernetes/scale reads them.
func init() {
	go func() { _ = http.ListenAndServe("127.0.0.1:6060", nil) }() //nolint:gosec // for measurements only
}
