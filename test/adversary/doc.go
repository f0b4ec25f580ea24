// Package adversary attacks the network as somebody with a pod would, who has NET_RAW and NET_ADMIN: a table of attacks
// sends real frames from a pod's namespace, and captures in all pods say what arrives. README.md says how it is built
// and how to add a row.
package adversary
