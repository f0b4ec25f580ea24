package ipsec

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// onePeer has one tunnel each way.
func onePeer(made bool) Spec {
	return Spec{Peers: []Peer{{
		Name: "b", Local: netip.MustParseAddr("192.0.2.1"), Remote: netip.MustParseAddr("192.0.2.2"), In: []Tunnel{{SPI: 1000, Made: made}}, Out: []Tunnel{{SPI: 2000, Made: made}},
	}}}
}

func kernelState(s state) netlink.XfrmState {
	return netlink.XfrmState{Src: s.from.AsSlice(), Dst: s.to.AsSlice(), Proto: netlink.XFRM_PROTO_ESP, Spi: int(s.SPI), Ifid: InterfaceID, Aead: &netlink.XfrmStateAlgo{}}
}

// What was made and is gone is not made anew with the same key: it is an error. All else is added, or deleted.
func TestDifferences(t *testing.T) {
	var present []netlink.XfrmState
	for _, s := range statesOf(onePeer(true).Peers[0]) {
		present = append(present, kernelState(s))
	}
	for _, test := range []struct {
		what           string
		spec           Spec
		present        []netlink.XfrmState
		missing, stale int
		gone           bool
	}{
		{"new", onePeer(false), nil, 2, 0, false},
		{"there", onePeer(true), present, 0, 0, false},
		{"one is gone", onePeer(true), present[:1], 0, 0, true},
		{"unwanted", Spec{}, present, 0, 2, false},
		{"unknown", Spec{Partial: true}, present, 0, 0, false},
	} {
		missing, stale, err := differences(test.spec, newStates(test.present))
		if len(missing["b"]) != test.missing || len(stale) != test.stale || errors.Is(err, ErrGone) != test.gone {
			t.Errorf("%s: %d missing, %d stale, error %v", test.what, len(missing["b"]), len(stale), err)
		}
	}
}

// The kernel's placeholder of a missing state is no state.
func TestIsOurState(t *testing.T) {
	ours := kernelState(statesOf(onePeer(false).Peers[0])[0])
	placeholder, others := ours, ours
	placeholder.Aead, others.Ifid = nil, 1
	if !isOurState(&ours) || isOurState(&placeholder) || isOurState(&others) {
		t.Errorf("ours %t, a placeholder %t, another program's %t", isOurState(&ours), isOurState(&placeholder), isOurState(&others))
	}
}

// The kernel may refuse a state of one peer: all others are made, and nothing is left of that one. With an SPI that is taken
// nothing is left at all.
func TestAddAll(t *testing.T) {
	for _, test := range []struct {
		fault         error
		left, refused int
	}{{errors.New("no memory"), 4, 1}, {ErrTaken, 0, 0}} {
		kernel := map[uint32]bool{}
		add := func(s state) error {
			if s.SPI == 12 {
				return test.fault
			}
			kernel[s.SPI] = true
			return nil
		}
		remove := func(all []netlink.XfrmState) error {
			for i := range all {
				delete(kernel, uint32(all[i].Spi))
			}
			return nil
		}
		all := map[string][]state{}
		for i, name := range []string{"a", "b", "c"} {
			spi := uint32(10 * i)
			all[name] = []state{{Tunnel: Tunnel{SPI: spi + 1}}, {Tunnel: Tunnel{SPI: spi + 2}}}
		}
		refused, err := addAll(all, add, remove)
		if len(kernel) != test.left || len(refused) != test.refused || errors.Is(err, ErrTaken) != errors.Is(test.fault, ErrTaken) {
			t.Errorf("%v: %d states left, refused %v, error %v", test.fault, len(kernel), refused, err)
		}
	}
}
