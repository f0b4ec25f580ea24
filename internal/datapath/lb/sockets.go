package lb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/device/sock"
)

// Sockets destroys sockets connected to removed backends. TCP does not need it: the backend's end resets, or no reply
// arrives. UDP would send to the removed backend while the socket is open.
type Sockets struct {
	peers *ebpf.Map
	log   *slog.Logger

	mu       sync.Mutex
	probed   bool
	iterator *destroyer // nil on kernels without bpf_sock_destroy
}

// destroyer is the program of bpf/destroy.c.
type destroyer struct {
	destroyerObjects
	link *link.Iter
}

// destroyerObjects are the objects used; the map sock_storage is the datapath's.
type destroyerObjects struct {
	Program *ebpf.Program `ebpf:"destroy_udp"`
	Gone    *ebpf.Map     `ebpf:"stale_backends"`
}

// NewSockets returns Sockets on this map.
func NewSockets(m *bpf.Maps, log *slog.Logger) *Sockets {
	return &Sockets{peers: m.SockStorage, log: log}
}

// DestroyUDP destroys the UDP sockets that are connected to one of the backends in gone, in the calling thread's network
// namespace and in the namespaces that the paths name, and returns their number. Their applications get ECONNABORTED and
// connect again. Namespaces that are no more are passed over.
//
// Only sockets that went through a Service are meant. Before Linux 6.5 the kernel does not tell them from those
// that an application connected to the backend's own address, and these are destroyed with them.
func (s *Sockets) DestroyUDP(netns []string, gone []netip.AddrPort) (destroyed int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	destroy, done, err := s.way(gone)
	if err != nil {
		return 0, err
	}
	destroyed, err = destroy()
	if err != nil {
		err = fmt.Errorf("destroy UDP sockets: %w", err)
	}
	errs := []error{err}
	for _, path := range netns {
		err := ns.WithNetNSPath(path, func(ns.NetNS) error {
			n, err := destroy()
			destroyed += n
			return err
		})
		var notThere ns.NSPathNotExistErr
		if err != nil && !errors.As(err, &notThere) {
			errs = append(errs, fmt.Errorf("destroy UDP sockets in %s: %w", path, err))
		}
	}
	return destroyed, errors.Join(append(errs, done())...)
}

// way gives what destroys the sockets in one network namespace, and what to call at the end.
func (s *Sockets) way(gone []netip.AddrPort) (destroy func() (int, error), done func() error, err error) {
	if !s.probed {
		if s.iterator, err = loadDestroyer(s.peers); err != nil {
			level := slog.LevelWarn
			if errors.Is(err, ebpf.ErrNotSupported) {
				level = slog.LevelInfo
			}
			s.log.Log(context.Background(), level, "UDP sockets are destroyed by their peer only, also sockets that use a backend's address without a Service", "reason", err)
		}
		s.probed = true
	}
	if s.iterator == nil {
		wanted := map[netip.AddrPort]bool{}
		for _, b := range gone {
			wanted[netip.AddrPortFrom(b.Addr().Unmap(), b.Port())] = true
		}
		return func() (int, error) { return sock.DestroyUDP(wanted) }, func() error { return nil }, nil
	}
	for i, b := range gone {
		if err := s.iterator.Gone.Put(bpf.BackendOf(b), uint8(1)); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("mark backend %s as gone: %w", b, err), s.iterator.forget(gone[:i]))
		}
	}
	return func() (int, error) { return kernel.RunIterator(s.iterator.link) }, func() error { return s.iterator.forget(gone) }, nil
}

func loadDestroyer(peers *ebpf.Map) (*destroyer, error) {
	spec, err := bpf.LoadDestroy()
	if err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	var d destroyer
	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{bpf.MapSockStorage: peers}}
	if err := spec.LoadAndAssign(&d.destroyerObjects, &options); err != nil {
		return nil, fmt.Errorf("load destroy_udp: %w", err)
	}
	if d.link, err = link.AttachIter(link.IterOptions{Program: d.Program}); err != nil {
		return nil, errors.Join(fmt.Errorf("attach destroy_udp: %w", err), d.close())
	}
	return &d, nil
}

func (d *destroyer) forget(gone []netip.AddrPort) error {
	var errs []error
	for _, b := range gone {
		if err := d.Gone.Delete(bpf.BackendOf(b)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("unmark backend %s: %w", b, err))
		}
	}
	return errors.Join(errs...)
}

func (d *destroyer) close() error {
	err := errors.Join(d.Program.Close(), d.Gone.Close())
	if d.link != nil {
		err = errors.Join(err, d.link.Close())
	}
	return err
}

// Close releases the program, if it was needed.
func (s *Sockets) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.iterator == nil {
		return nil
	}
	d := s.iterator
	s.iterator, s.probed = nil, false
	return d.close()
}
