package harness

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// SameSlot returns clients of a server whose conntrack entries share a slot in ct_new.
func SameSlot(t *testing.T, server netip.AddrPort, protocol uint8, n int) []netip.AddrPort {
	t.Helper()
	var clients []netip.AddrPort
	var slot uint32
	for port := uint16(1024); len(clients) < n; port++ {
		if port == 65535 {
			t.Fatal("there are not enough ports")
		}
		client := End{fixtures.PodB, port}.At(fixtures.Family(server))
		if index := bpf.ConntrackNewIndex(KeyOf(client, server, protocol)); len(clients) == 0 || index == slot {
			clients, slot = append(clients, client), index
		}
	}
	return clients
}
