package ipsec

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// algorithm is AES-GCM with a 16-byte integrity check value (RFC 4106), as the kernel's crypto API names it.
const algorithm = "rfc4106(gcm(aes))"

// icvBits is the length of the integrity check value.
const icvBits = 128

// replayWindow is how many packets may arrive out of order, those of several CPUs among them.
const replayWindow = 1024

// stateKey identifies a state of the kernel: within one destination an SPI is unique.
type stateKey struct {
	to  netip.Addr
	spi uint32
}

// state is a state to add.
type state struct {
	from, to netip.Addr
	Tunnel
}

// States are Beeline's states that the kernel has.
type States struct {
	all  []netlink.XfrmState
	keys map[stateKey]bool
}

// ReadStates lists Beeline's states; without IPsec there are none.
func ReadStates() (States, error) {
	all, err := ourStates()
	if errors.Is(err, ErrUnsupported) {
		err = nil
	}
	return newStates(all), err
}

func newStates(all []netlink.XfrmState) States {
	s := States{all, make(map[stateKey]bool, len(all))}
	for i := range all {
		s.keys[keyOf(&all[i])] = true
	}
	return s
}

// Has reports whether there is a tunnel to this destination with this SPI.
func (s States) Has(to netip.Addr, spi uint32) bool { return s.keys[stateKey{to, spi}] }

// differences are the missing states, by peer, and the unwanted ones. It is an error if a state is missing that was there before.
func differences(spec Spec, present States) (missing map[string][]state, stale []netlink.XfrmState, err error) {
	wanted := map[stateKey]bool{}
	missing = map[string][]state{}
	for _, p := range spec.Peers {
		for _, s := range statesOf(p) {
			key := stateKey{s.to, s.SPI}
			wanted[key] = true
			switch {
			case present.keys[key]:
			case s.Made:
				return nil, nil, fmt.Errorf("%w: %#x at %s", ErrGone, s.SPI, s.to)
			default:
				missing[p.Name] = append(missing[p.Name], s)
			}
		}
	}
	if spec.Partial {
		return missing, nil, nil
	}
	for _, s := range present.all {
		if !wanted[keyOf(&s)] {
			stale = append(stale, s)
		}
	}
	return missing, stale, nil
}

func statesOf(p Peer) (all []state) {
	for _, t := range p.In {
		all = append(all, state{p.Remote, p.Local, t})
	}
	for _, t := range p.Out {
		all = append(all, state{p.Local, p.Remote, t})
	}
	return all
}

// addAll adds all states of a peer or none: what is left would add up. An SPI that is taken ends it, and what was added goes:
// the caller comes with other keys the next time.
func addAll(all map[string][]state, add func(state) error, remove func([]netlink.XfrmState) error) (refused map[string]error, err error) {
	refused = map[string]error{}
	var added []netlink.XfrmState
	for name, states := range all {
		before := len(added)
		for _, s := range states {
			err := add(s)
			if errors.Is(err, ErrTaken) {
				return nil, errors.Join(err, remove(added))
			}
			if err != nil {
				refused[name] = errors.Join(err, remove(added[before:]))
				added = added[:before]
				break
			}
			added = append(added, netlink.XfrmState{Src: s.from.AsSlice(), Dst: s.to.AsSlice(), Proto: netlink.XFRM_PROTO_ESP, Spi: int(s.SPI), Ifid: InterfaceID})
		}
	}
	return refused, nil
}

func keyOf(s *netlink.XfrmState) stateKey {
	to, _ := rtnl.Addr(s.Dst)
	return stateKey{to, uint32(s.Spi)}
}

// ourStates lists Beeline's states.
func ourStates() (ours []netlink.XfrmState, err error) {
	all, err := rtnl.Dump(func() ([]netlink.XfrmState, error) { return netlink.XfrmStateList(netlink.FAMILY_ALL) })
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, ErrUnsupported
	}
	if err != nil {
		return nil, fmt.Errorf("list IPsec states: %w", err)
	}
	for _, s := range all {
		if isOurState(&s) {
			ours = append(ours, s)
		}
	}
	return ours, nil
}

// isOurState reports whether Beeline has made a state. One without a cipher the kernel has made: it keeps the place of a missing
// one, for another program that negotiates keys.
func isOurState(s *netlink.XfrmState) bool {
	return s.Ifid == InterfaceID && s.Proto == netlink.XFRM_PROTO_ESP && s.Aead != nil
}

func addState(s state) error {
	from, to, t := s.from, s.to, s.Tunnel
	all := anyPrefix(t.IPv6)
	err := netlink.XfrmStateAdd(&netlink.XfrmState{
		Src: from.AsSlice(), Dst: to.AsSlice(), Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TUNNEL,
		Spi: int(t.SPI), Reqid: InterfaceID, Ifid: InterfaceID, ESN: true, ReplayWindow: replayWindow,
		Aead:     &netlink.XfrmStateAlgo{Name: algorithm, Key: t.Key, ICVLen: icvBits},
		Selector: &netlink.XfrmPolicy{Dst: rtnl.IPNet(all), Src: rtnl.IPNet(all)},
	})
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: %#x at %s", ErrTaken, t.SPI, to)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: add IPsec state from %s to %s: %w", ErrUnsupported, from, to, err)
	case err != nil:
		return fmt.Errorf("add IPsec state from %s to %s: %w", from, to, err)
	}
	return nil
}

func deleteStates(all []netlink.XfrmState) error {
	var errs []error
	for i := range all {
		s := &all[i]
		if err := netlink.XfrmStateDel(&netlink.XfrmState{Dst: s.Dst, Src: s.Src, Proto: s.Proto, Spi: s.Spi, Ifid: s.Ifid}); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("delete IPsec state from %s to %s: %w", s.Src, s.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// anyPrefix contains all addresses of a family.
func anyPrefix(ipv6 bool) netip.Prefix {
	if ipv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// Traffic is what a tunnel has carried.
type Traffic struct {
	// Packets and Bytes are those of inner packets. The sequence number of the last one sent is Packets.
	Packets, Bytes uint64
	// Rejected are packets that were not authentic, or that had arrived before.
	Rejected uint64
}

// Traffics reads what Beeline's tunnels have carried, by their SPI and destination; without IPsec there are none.
func Traffics() (map[netip.Addr]map[uint32]Traffic, error) {
	present, err := ourStates()
	if errors.Is(err, ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[netip.Addr]map[uint32]Traffic{}
	for i := range present {
		s, key := &present[i].Statistics, keyOf(&present[i])
		if all[key.to] == nil {
			all[key.to] = map[uint32]Traffic{}
		}
		all[key.to][key.spi] = Traffic{Packets: s.Packets, Bytes: s.Bytes, Rejected: uint64(s.Failed) + uint64(s.Replay) + uint64(s.ReplayWindow)}
	}
	return all, nil
}
