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

// sight is what is seen of a flood on the node.
type sight struct {
	tables map[string]agentapi.Map
	drops  map[string]uint64 // packets by reason
	// left are packets that went out by the uplink, reached those that came to near.
	left, reached uint64
	// tooBig are packets that the node's own stack did not forward, since they were too big.
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
	uplink, errUplink := linkStatistics(f.node.place, testbed.Uplink)
	near, errNear := linkStatistics(f.near.place, podInterface)
	if err := errors.Join(errUplink, errNear); err != nil {
		t.Fatal(err)
	}
	s.left, s.reached = uplink.TxPackets, near.RxPackets
	return s
}

func linkStatistics(place testbed.Place, device string) (counted netlink.LinkStatistics, err error) {
	err = place.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(device)
		if err == nil {
			counted = *link.Attrs().Statistics
		}
		return err
	})
	return counted, err
}

// tooBig reads how many packets the node's stack had to cut and might not, of both families.
func (f *floods) tooBig() (packets uint64, err error) {
	err = f.node.place.Do(func() error {
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

// protocolCounter finds a counter in what /proc/net/snmp6 has, or, with the name of its line before it, /proc/net/snmp.
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

// proof says what is missing of a flood that has sent so many packets between two looks.
type proof func(before, after sight, sent uint64) error

// Parts of a flood or of a table, in hundredths. Some packets are still under way, and some kinds send only a part of theirs to other nodes. Of
// what comes from outside to XDP, the ring of a veth takes not all.
const (
	nearly = 90
	most   = 75
	half   = 50
	some   = 40
	few    = 15
)

func counted(what string, before, after, sent uint64, part uint64) error {
	if got, want := after-before, sent*part/100; got < want {
		return fmt.Errorf("%d packets %s of %d that were sent, want at least %d", got, what, sent, want)
	}
	return nil
}

// leaves is a flood of which a part goes out to other machines. What is translated does so only once it has its entry.
func leaves(part uint64) proof {
	return func(before, after sight, sent uint64) error {
		return counted("left the node", before.left, after.left, sent, part)
	}
}

// reachesNear is a flood of which most reaches that pod.
func reachesNear(before, after sight, sent uint64) error {
	return counted("reached the pod", before.reached, after.reached, sent, most)
}

// tooBig is a flood of which the node's stack finds most too big.
func tooBig(before, after sight, sent uint64) error {
	return counted("were too big", before.tooBig, after.tooBig, sent, most)
}

// dropped is a flood of which most is dropped for one reason.
func dropped(reason string) proof {
	return func(before, after sight, sent uint64) error {
		return counted("were dropped ("+reason+")", before.drops[reason], after.drops[reason], sent, most)
	}
}

// filled is a flood that leaves at least so many entries in a table.
func filled(table string, entries int) proof {
	return func(_, after sight, _ uint64) error {
		if got := after.tables[table].Entries; got < entries {
			return fmt.Errorf("table %s has %d entries, want at least %d", table, got, entries)
		}
		return nil
	}
}

// full is a flood that fills a part of a table.
func full(table string, part int) proof {
	return func(before, after sight, sent uint64) error {
		return filled(table, int(after.tables[table].MaxEntries)*part/100)(before, after, sent)
	}
}

// fullSessions is a flood that fills the share of sessions, of both addresses of a pod, that have only begun: a quarter of a sixteenth of the table.
func fullSessions(before, after sight, sent uint64) error {
	return filled("ct_slots", 2*int(after.tables["conntrack"].MaxEntries)/16/4)(before, after, sent)
}

// expectShown waits a moment until a flood shows what it is to show.
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
			t.Errorf("the flood does not show: %v", err)
			return
		}
	}
}

// notReceived is how many packets never came to a program since the lab is there: the ring of 256 frames that a device with XDP has was full, or, on the
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
