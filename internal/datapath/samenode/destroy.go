package samenode

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
)

// destroyer is the program of bpf/same_node_destroy.c.
type destroyer struct {
	destroyerObjects
	link *link.Iter
}

type destroyerObjects struct {
	Program *ebpf.Program `ebpf:"destroy_same_node"`
}

// openDestroyer loads the program. It needs bpf_sock_destroy (Linux 6.5).
func openDestroyer(s *SameNode) (*destroyer, error) {
	spec, err := bpf.LoadSameNodeDestroy()
	if err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	replacements := map[string]*ebpf.Map{bpf.SameNodeMapSnStorage: s.Storage, bpf.SameNodeMapSnRevoked: s.Revoked}
	var d destroyer
	if err := spec.LoadAndAssign(&d.destroyerObjects, &ebpf.CollectionOptions{MapReplacements: replacements}); err != nil {
		return nil, fmt.Errorf("load destroy_same_node: %w", err)
	}
	if d.link, err = link.AttachIter(link.IterOptions{Program: d.Program}); err != nil {
		return nil, errors.Join(fmt.Errorf("attach destroy_same_node: %w", err), d.Program.Close())
	}
	return &d, nil
}

// CannotDestroy is why this kernel does not destroy the sockets of revoked connections; nil if it does.
func (s *SameNode) CannotDestroy() error { return s.noDestroy }

// DestroyRevoked destroys the sockets in these network namespaces whose connection policies no longer allow, and
// returns their number. Their applications get ECONNABORTED. Namespaces that are gone are passed over.
func (s *SameNode) DestroyRevoked(netns []string) (destroyed int, err error) {
	if s.destroy == nil {
		return 0, nil
	}
	var errs []error
	for _, path := range netns {
		err := ns.WithNetNSPath(path, func(ns.NetNS) error {
			n, err := kernel.RunIterator(s.destroy.link)
			destroyed += n
			return err
		})
		var gone ns.NSPathNotExistErr
		if err != nil && !errors.As(err, &gone) {
			errs = append(errs, fmt.Errorf("destroy revoked sockets in %s: %w", path, err))
		}
	}
	return destroyed, errors.Join(errs...)
}

func (d *destroyer) close() error { return errors.Join(d.Program.Close(), d.link.Close()) }
