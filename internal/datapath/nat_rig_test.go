package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

const (
	isOpener  = uint8(bpfNatFlagNAT_INITIATOR)
	isFIN     = uint8(bpfNatFlagNAT_FIN)
	isReset   = uint8(bpfNatFlagNAT_RESET)
	isDirect  = uint8(bpfNatFlagNAT_DSR)
	isPlain   = uint8(bpfNatFlagNAT_UNCHANGED)
	isResting = uint8(bpfNatFlagNAT_TIME_WAIT)
	isStream  = uint8(bpfNatFlagNAT_STREAM)
)

// someTime is the present of tests of expiry: long after anything began.
const someTime = 100 * time.Hour

// natEntry is one direction of a translated connection, as its map has it.
type natEntry struct {
	key   bpfTuple
	value bpfNatEntry
}

// half is one direction of a connection in a test: how long it has been quiet, and what it has seen.
type half struct {
	quiet   time.Duration
	flags   uint8
	packets uint8
	missing bool
}

// clientTo gives the two directions of a connection of the world to a Service, forwarded with this node's address.
func clientTo(backend netip.AddrPort, protocol uint8, clientPort uint16, service uint32) (there, back natEntry) {
	client, frontend, node := addressOf(world.v4), addressOf(nodeA.v4), addressOf(nodeA.v4)
	there.key = bpfTuple{Source: client, Destination: frontend, SourcePort: networkOrder(clientPort), DestinationPort: networkOrder(30080), Protocol: protocol}
	there.value = bpfNatEntry{
		Source: node, Destination: addressOf(backend.Addr()), SourcePort: networkOrder(clientPort + 1), DestinationPort: networkOrder(backend.Port()),
		Service: service, Flags: isOpener,
	}
	back.key = bpfTuple{
		Source: addressOf(backend.Addr()), Destination: node, SourcePort: networkOrder(backend.Port()), DestinationPort: networkOrder(clientPort + 1),
		Protocol: protocol,
	}
	back.value = bpfNatEntry{
		Source: frontend, Destination: client, SourcePort: networkOrder(30080), DestinationPort: networkOrder(clientPort), Service: service,
	}
	return there, back
}

func (h half) put(t *testing.T, m *ebpf.Map, e natEntry) {
	t.Helper()
	if h.missing {
		return
	}
	e.value.Seen = uint64((someTime - h.quiet).Nanoseconds())
	e.value.Flags |= h.flags
	e.value.Packets += h.packets
	if err := m.Put(e.key, e.value); err != nil {
		t.Fatal(err)
	}
}
