// Package adversary runs a table of attacks from a pod with NET_RAW and NET_ADMIN: it sends real frames from the
// pod's network namespace and captures what arrives in all pods. README.md describes its structure and how to add a
// row.
package adversary
