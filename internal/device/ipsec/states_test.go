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
		Local: netip.MustParseAddr("192.0.2.1"), Remote: netip.MustParseAddr("192.0.2.2"), In: []Tunnel{{SPI: 1000, Made: made}}, Out: []Tunnel{{SPI: 2000, Made: made}},
	}}}
}

func kernelState(s state) netlink.XfrmState {
	return netlink.XfrmState{Src: s.from.AsSlice(), Dst: s.to.AsSlice(), Proto: netlink.XFRM_PROTO_ESP, Spi: int(s.SPI), Ifid: InterfaceID, Aead: &netlink.XfrmStateAlgo{}}
}

// What was made and is gone is not made anew with the same key: it is an error. All else is added, or deleted.
func TestDifferences(t *testing.T) {
	var present []netlink.XfrmState
	for _, s := range statesOf(onePeer(true)) {
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
		missing, stale, err := differences(test.spec, test.present)
		if len(missing) != test.missing || len(stale) != test.stale || errors.Is(err, ErrGone) != test.gone {
			t.Errorf("%s: %d missing, %d stale, error %v", test.what, len(missing), len(stale), err)
		}
	}
}

// Of states that cannot be added all none is left.
func TestAddAllOrNone(t *testing.T) {
	failure, added := errors.New("no memory"), 0
	var removed []netlink.XfrmState
	err := addAll(statesOf(onePeer(false)), func(state) error {
		if added++; added == 2 {
			return failure
		}
		return nil
	}, func(all []netlink.XfrmState) error { removed = all; return nil })
	if !errors.Is(err, failure) || len(removed) != 1 || keyOf(&removed[0]) != (stateKey{netip.MustParseAddr("192.0.2.1"), 1000}) {
		t.Errorf("error %v, removed %v", err, removed)
	}
}

// The kernel's placeholder of a missing state is no state.
func TestIsOurState(t *testing.T) {
	ours := kernelState(statesOf(onePeer(false))[0])
	placeholder, others := ours, ours
	placeholder.Aead, others.Ifid = nil, 1
	if !isOurState(&ours) || isOurState(&placeholder) || isOurState(&others) {
		t.Errorf("ours %t, a placeholder %t, another program's %t", isOurState(&ours), isOurState(&placeholder), isOurState(&others))
	}
}
