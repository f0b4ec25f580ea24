// Package bandwidth bounds the limits of what pods send and receive, for annotations and for what a runtime passes to the plugin.
package bandwidth

// Min and Max bound a limit, in bit/s: the kubelet rejects others.
const (
	Min = 1e3
	Max = 1e15
)
