package device

import (
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func TestMonitorFilter(t *testing.T) {
	node := newNode(t)
	var changes <-chan Change
	inside(t, node, func() (err error) {
		changes, err = Monitor(t.Context(), slog.New(slog.DiscardHandler))
		return err
	})
	ours := &nftables.Table{Name: FilterTable, Family: nftables.TableFamilyINet}
	others := &nftables.Table{Name: "others", Family: nftables.TableFamilyINet}
	namesake := &nftables.Table{Name: FilterTable, Family: nftables.TableFamilyIPv4}
	chain := func(table *nftables.Table) *nftables.Chain {
		return &nftables.Chain{Name: "c", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityFilter}
	}
	rule := func(table *nftables.Table) *nftables.Rule {
		return &nftables.Rule{Table: table, Chain: chain(table), Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}}
	}
	set := &nftables.Set{Table: ours, Name: "s", KeyType: nftables.TypeIPAddr}
	element := []nftables.SetElement{{Key: []byte{192, 0, 2, 1}}}
	steps := []struct {
		name string
		act  func(*nftables.Conn)
		want bool
	}{
		{"somebody else's table", func(c *nftables.Conn) { c.AddTable(others); c.AddChain(chain(others)); c.AddRule(rule(others)) }, false},
		{"a namesake of another family", func(c *nftables.Conn) { c.AddTable(namesake) }, false},
		{"ours", func(c *nftables.Conn) { c.AddTable(ours) }, true},
		{"a chain", func(c *nftables.Conn) { c.AddChain(chain(ours)) }, true},
		{"a rule", func(c *nftables.Conn) { c.AddRule(rule(ours)) }, true},
		{"a set", func(c *nftables.Conn) { _ = c.AddSet(set, nil) }, true},
		{"an element", func(c *nftables.Conn) { _ = c.SetAddElements(set, element) }, true},
		{"an element gone", func(c *nftables.Conn) { _ = c.SetDeleteElements(set, element) }, true},
		{"somebody else's table gone", func(c *nftables.Conn) { c.DelTable(others) }, false},
		{"rules flushed", func(c *nftables.Conn) { c.FlushTable(ours) }, true},
		{"everything flushed", func(c *nftables.Conn) { c.FlushRuleset() }, true},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			inside(t, node, func() error {
				connection, err := nftables.New()
				if err != nil {
					return err
				}
				step.act(connection)
				return connection.Flush()
			})
			if step.want {
				awaitChange(t, changes, func(c Change) bool { return c.Filter })
				drain(changes)
				return
			}
			if sum := drain(changes); sum.Filter {
				t.Errorf("reported %+v", sum)
			}
		})
	}
}

// drain adds up changes until none comes for some time.
func drain(changes <-chan Change) (sum Change) {
	for {
		select {
		case change := <-changes:
			sum.merge(change)
		case <-time.After(5 * settle):
			return sum
		}
	}
}

func TestMonitorSurvivesABrokenFilterSocket(t *testing.T) {
	node := newNode(t)
	inside(t, node, func() error {
		here, err := netns.Get()
		if err != nil {
			return err
		}
		t.Cleanup(func() { here.Close() })
		socket, err := filterFeed.subscribe(here)
		if err != nil {
			return err
		}
		socket.Close()
		seen := make(chan Change)
		go filterFeed.watch(t.Context(), slog.New(slog.DiscardHandler), here, socket, seen)
		awaitChange(t, seen, func(c Change) bool { return c.Filter && !c.Links })
		return nil
	})
}

func TestFilterChangeOf(t *testing.T) {
	const newTable = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE
	inet := []byte{unix.NFPROTO_INET, 0, 0, 0}
	name := append([]byte{12, 0, unix.NFTA_TABLE_NAME, 0}, "beeline\x00"...)
	tests := []struct {
		name string
		kind uint16
		data []byte
		want bool
	}{
		{"ours", newTable, append(inet, name...), true},
		{"another subsystem", unix.NFNL_SUBSYS_CTNETLINK << 8, append(inet, name...), false},
		{"another family", newTable, append([]byte{unix.NFPROTO_IPV4, 0, 0, 0}, name...), false},
		{"longer name", newTable, append(inet, "\x0d\x00\x01\x00beeline2\x00\x00\x00\x00"...), false},
		{"generation", unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN, append(inet, 8, 0, 1, 0, 0, 0, 0, 7), false},
		{"no header", newTable, inet[:3], false},
		{"nothing in it", newTable, inet, false},
		{"broken attribute", newTable, append(inet, 200, 0, 1, 0), true},
	}
	for _, test := range tests {
		got := filterChangeOf(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: test.kind}, Data: test.data})
		if got.Filter != test.want {
			t.Errorf("%s: %v, want %v", test.name, got.Filter, test.want)
		}
	}
}
