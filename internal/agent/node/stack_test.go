package node

import (
	"testing"
)

// A pod that passes the kernel stack does so with each of its addresses, whatever the reason, and no other pod does.
func TestDesireThroughStack(t *testing.T) {
	f := twoNodes()
	other := f.Endpoints[0]
	other.HostDevice, other.HostIfIndex, other.Addresses = "bl2", 22, addrs("10.1.1.3", "fd00:1::3")
	other.ThroughStack = "port mapping"
	f.Endpoints = append(f.Endpoints, other)
	d := Desire(f)
	for a, want := range map[string]bool{"10.1.1.2": false, "fd00:1::2": false, "10.1.1.3": true, "fd00:1::3": true} {
		if got, ok := d.Endpoints[addr(a)]; !ok || got.ThroughStack != want {
			t.Errorf("%s: %+v, want through the stack: %t", a, got, want)
		}
	}
}
