package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// sight is the state of the node's tables and counters.
type sight struct {
	tables map[string]agentapi.Map
	drops  map[string]uint64 // packets by reason
	// left counts packets sent by the uplink, reached those received by near.
	left, reached uint64
	// tooBig counts packets that the node's kernel stack did not forward because they exceed the MTU.
	tooBig uint64
}

func (f *floods) look(t *testing.T) (s sight) {
	t.Helper()
	s = sight{tables: map[string]agentapi.Map{}, drops: map[string]uint64{}}
	drops, err := f.here.api().Drops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drops {
		s.drops[d.Reason] += d.Packets
	}
	for _, m := range f.status(f.here).Maps {
		s.tables[m.Name] = m
	}
	s.tooBig, err = f.tooBig()
	if err != nil {
		t.Fatal(err)
	}
	uplink, errUplink := linkStatistics(f.node.netns, testbed.Uplink)
	near, errNear := linkStatistics(f.near.netns, podInterface)
	if err := errors.Join(errUplink, errNear); err != nil {
		t.Fatal(err)
	}
	s.left, s.reached = uplink.TxPackets, near.RxPackets
	return s
}

func linkStatistics(netns testbed.Netns, device string) (counted netlink.LinkStatistics, err error) {
	err = netns.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(device)
		if err == nil {
			counted = *link.Attrs().Statistics
		}
		return err
	})
	return counted, err
}

// tooBig reads how many packets, of both families, exceed the MTU in the node's kernel stack and must not be fragmented.
func (f *floods) tooBig() (packets uint64, err error) {
	err = f.node.netns.Do(func() error {
		for file, field := range map[string]string{"snmp": "Ip: FragFails", "snmp6": "Ip6FragFails"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			n, err := protocolCounter(string(text), field)
			if err != nil {
				return fmt.Errorf("read %s: %w", file, err)
			}
			packets += n
		}
		return nil
	})
	return packets, err
}

// protocolCounter finds a counter in the text of /proc/net/snmp6, or of /proc/net/snmp after the name of its line.
func protocolCounter(text, field string) (uint64, error) {
	line, name, named := strings.Cut(field, " ")
	var header []string
	for _, l := range strings.Split(text, "\n") {
		words := strings.Fields(l)
		switch {
		case len(words) == 0 || words[0] != line:
		case !named:
			return strconv.ParseUint(words[1], 10, 64)
		case header == nil:
			header = words
		default:
			if i := slices.Index(header, name); i > 0 && i < len(words) {
				return strconv.ParseUint(words[i], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("no counter %s", field)
}

// proof checks the effect of a flood of this many packets.
type proof func(before, after sight, sent uint64) error

// Parts of a flood or of a table, in percent. Some packets are still in flight, and some kinds send only a part to
// other nodes. The ring of a veth drops a part of the packets to XDP.
const (
	nearly = 90
	most   = 75
	half   = 50
	some   = 40
	few    = 15
)

func counted(event string, before, after, sent uint64, part uint64) error {
	if got, want := after-before, sent*part/100; got < want {
		return fmt.Errorf("%d of %d packets %s, want at least %d", got, sent, event, want)
	}
	return nil
}

// leaves checks that a part of the flood leaves the node. A translated packet leaves only with its NAT entry.
func leaves(part uint64) proof {
	return func(before, after sight, sent uint64) error {
		return counted("left the node", before.left, after.left, sent, part)
	}
}

// reachesNear checks that most of the flood reaches the pod near.
func reachesNear(before, after sight, sent uint64) error {
	return counted("reached the pod", before.reached, after.reached, sent, most)
}

// tooBig checks that most of the flood exceeds the MTU in the node's kernel stack.
func tooBig(before, after sight, sent uint64) error {
	return counted("were too big", before.tooBig, after.tooBig, sent, most)
}

// dropped checks that most of the flood is dropped for a reason.
func dropped(reason string) proof {
	return func(before, after sight, sent uint64) error {
		return counted("were dropped ("+reason+")", before.drops[reason], after.drops[reason], sent, most)
	}
}

// filled checks that a table has at least this many entries.
func filled(table string, entries int) proof {
	return func(_, after sight, _ uint64) error {
		if got := after.tables[table].Entries; got < entries {
			return fmt.Errorf("table %s has %d entries, want at least %d", table, got, entries)
		}
		return nil
	}
}

// full checks that a part of a table is used.
func full(table string, part int) proof {
	return func(before, after sight, sent uint64) error {
		return filled(table, int(after.tables[table].MaxEntries)*part/100)(before, after, sent)
	}
}

// fullConntrackShare checks that both addresses of a pod use their shares of new conntrack entries: a quarter of a
// sixteenth of the table each.
func fullConntrackShare(before, after sight, sent uint64) error {
	return filled("ct_slots", 2*int(after.tables["conntrack"].MaxEntries)/16/4)(before, after, sent)
}

// expectShown waits a moment until all proofs succeed.
func (f *floods) expectShown(t *testing.T, shows []proof, before sight, sent *atomic.Int64) {
	t.Helper()
	const moment = 3 * time.Second
	for began := time.Now(); ; {
		count := uint64(sent.Load())
		after, err := f.look(t), error(nil)
		if count == 0 {
			err = errors.New("nothing was sent")
		}
		for _, shown := range shows {
			err = errors.Join(err, shown(before, after, count))
		}
		if err == nil {
			return
		}
		if time.Since(began) > moment {
			t.Errorf("the flood has too little effect: %v", err)
			return
		}
	}
}

// notReceived counts packets that reached no program: the ring of 256 frames of a device with XDP was full, or, on the
// whole machine, the backlog of a CPU (net.core.netdev_max_backlog).
func (f *floods) notReceived(t *testing.T) (ring, backlog uint64) {
	t.Helper()
	port, err := linkStatistics(f.lab.Switch(), f.lab.SwitchPort(f.here.Node))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for cpu := range strings.Lines(string(text)) {
		n, err := strconv.ParseUint(strings.Fields(cpu)[1], 16, 64)
		if err != nil {
			t.Fatalf("read /proc/net/softnet_stat: %v", err)
		}
		backlog += n
	}
	return port.TxDropped, backlog
}
