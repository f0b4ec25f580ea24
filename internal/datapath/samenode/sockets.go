package samenode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Socket is an open TCP socket that meets, or met, another one.
type Socket struct {
	Local, Remote netip.AddrPort
	// Netns is the cookie of the socket's network namespace.
	Netns uint64
	// Meets says that its last message went to the other socket. Otherwise nothing was sent yet, or packets are.
	Meets bool
	// Swept says that it is an ordinary socket again.
	Swept bool
}

// All lists the sockets.
func (s *SameNode) All() ([]Socket, error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	var all []Socket
	for _, r := range records {
		all = append(all, Socket{
			Local:  netip.AddrPortFrom(bpf.Address(r.Peer.Remote).Addr(), bpf.NetworkOrder(r.Peer.RemotePort)),
			Remote: netip.AddrPortFrom(bpf.Address(r.Peer.Local).Addr(), bpf.NetworkOrder(r.Peer.LocalPort)),
			Netns:  r.Netns,
			Meets:  stateOf(r) == bpf.SameNodeStateSAME_NODE_SOCKETS,
			Swept:  r.Mapped == 0,
		})
	}
	return all, nil
}

// records runs list_same_node.
func (s *SameNode) records() ([]bpf.SameNodeRecord, error) {
	sockets, err := s.list.Open()
	if err != nil {
		return nil, fmt.Errorf("open iterator of %s: %w", bpf.SameNodeMapSnStorage, err)
	}
	defer sockets.Close()
	data, err := io.ReadAll(sockets)
	if err != nil {
		return nil, fmt.Errorf("list sockets of %s: %w", bpf.SameNodeMapSnStorage, err)
	}
	records := make([]bpf.SameNodeRecord, len(data)/binary.Size(bpf.SameNodeRecord{}))
	if err := binary.Read(bytes.NewReader(data), binary.NativeEndian, records); err != nil {
		return nil, fmt.Errorf("parse sockets of %s: %w", bpf.SameNodeMapSnStorage, err)
	}
	return records, nil
}

func stateOf(r bpf.SameNodeRecord) bpf.SameNodeState { return bpf.SameNodeState(r.State) }

// keyOf is the socket's key in sn_sockets.
func keyOf(r bpf.SameNodeRecord) bpf.SameNodeKey {
	return bpf.SameNodeKey{
		Local: r.Peer.Remote, Remote: r.Peer.Local, LocalPort: r.Peer.RemotePort, RemotePort: r.Peer.LocalPort, Netns: r.Netns, PeerNetns: r.Peer.Netns,
	}
}

// Swept is the result of a sweep.
type Swept struct {
	// Sockets are open, Meeting of them exchange data with another one, and Removed became ordinary ones.
	Sockets, Meeting, Removed int
}

// Sweep makes sockets that went back to packets ordinary ones, which are faster, and corrects the count of each pod's
// sockets: the datapath's own would drift if another program at sockets cleared its callback. Sweeps are at least a
// second apart, see idle.
func (s *SameNode) Sweep() (swept Swept, err error) {
	s.sweep.Lock()
	defer s.sweep.Unlock()
	records, err := s.records()
	if err != nil {
		return swept, err
	}
	swept.Sockets = len(records)
	count := map[uint64]uint32{}
	for _, r := range records {
		count[r.Netns]++
		if stateOf(r) == bpf.SameNodeStateSAME_NODE_SOCKETS {
			swept.Meeting++
		}
	}
	errs := []error{s.recount(count)}
	idle := idle(records)
	for key := range idle {
		if !s.idle[key] {
			continue
		}
		delete(idle, key)
		switch err := s.maps.Sockets.Delete(key); {
		case err == nil:
			swept.Removed++
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			errs = append(errs, fmt.Errorf("delete socket from %s: %w", bpf.SameNodeMapSnSockets, err))
		}
	}
	s.idle = idle
	return swept, errors.Join(errs...)
}

// idle are the sockets to which the other socket sends packets only, and which have no unread data of it. Removing a
// socket from its map would lose such data. A message is under way for some microseconds after the other socket has
// decided to send it, so a socket has to be idle in two sweeps.
func idle(records []bpf.SameNodeRecord) map[bpf.SameNodeKey]bool {
	state := map[bpf.SameNodeKey]bpf.SameNodeState{}
	for _, r := range records {
		state[keyOf(r)] = stateOf(r)
	}
	all := map[bpf.SameNodeKey]bool{}
	for _, r := range records {
		other, open := state[r.Peer]
		if !open { // closed, or never there
			other = stateOf(r)
		}
		if r.Mapped != 0 && r.Unread == 0 && other == bpf.SameNodeStateSAME_NODE_PACKETS {
			all[keyOf(r)] = true
		}
	}
	return all
}

// recount writes how many sockets each pod has.
func (s *SameNode) recount(count map[uint64]uint32) error {
	var netns uint64
	var have uint32
	var errs []error
	all := s.Shares.Iterate()
	for all.Next(&netns, &have) {
		n := count[netns]
		if n == have {
			continue
		}
		if n > 0 {
			errs = append(errs, s.Shares.Put(netns, n))
		} else if err := s.Shares.Delete(netns); !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(append(errs, all.Err())...); err != nil {
		return fmt.Errorf("count sockets in map %s: %w", bpf.SameNodeMapSnShares, err)
	}
	return nil
}
