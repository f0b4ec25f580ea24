// Package samenode has the datapath of --same-node=sockets: programs that pass data from the socket of one pod to the
// socket of another pod of the same node, if both opted in. It shares the tables of policies and conntrack with the
// datapath. Without the flag nothing of it is loaded.
package samenode

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// shared are the maps of the datapath that the programs read.
var shared = []string{
	bpf.MapGeneration, bpf.MapConntrack, bpf.MapCtNew, bpf.MapPolicyPods, bpf.MapIdentities, bpf.MapIdentityCidrs,
	bpf.MapPolicies, bpf.MapPolicyPorts,
}

// programs are those of bpf/same_node.c.
type programs struct {
	Open *ebpf.Program `ebpf:"same_node_open"`
	Send *ebpf.Program `ebpf:"same_node_send"`
	List *ebpf.Program `ebpf:"list_same_node"`
}

// maps are those of bpf/maps_same_node.h.
type maps struct {
	Pods    *ebpf.Map `ebpf:"sn_pods"`
	Shares  *ebpf.Map `ebpf:"sn_shares"`
	Sockets *ebpf.Map `ebpf:"sn_sockets"`
	Storage *ebpf.Map `ebpf:"sn_storage"`
	Counts  *ebpf.Map `ebpf:"sn_counts"`
	Active  *ebpf.Map `ebpf:"sn_active"`
	Revoked *ebpf.Map `ebpf:"sn_revoked"`
}

type objects struct {
	programs
	maps
}

// SameNode is the loaded programs and their maps. Its methods are safe for concurrent use.
type SameNode struct {
	objects
	datapath *load.Objects
	cgroup   string
	number   uint64
	list     *link.Iter
	// sweep guards idle: the sockets that were idle in the last sweep.
	sweep sync.Mutex
	idle  map[bpf.SameNodeKey]bool
	// destroy is nil before Linux 6.5; noDestroy is why.
	destroy   *destroyer
	noDestroy error
	log       *slog.Logger
}

// Names of pins.
const (
	pinActive  = bpf.SameNodeMapSnActive
	pinSockets = bpf.SameNodeMapSnSockets
	pinOpen    = bpf.SameNodeProgSameNodeOpen
)

// PinnedMaps are the maps that outlive the agent.
var PinnedMaps = []string{pinActive, pinSockets}

// Dir is the directory of pins below the datapath's root.
func Dir(root string) string { return filepath.Join(root, "same-node") }

// Open loads the programs. They do nothing until Attach. Sockets of an earlier agent's programs go back to packets with
// their next message: those programs read maps that may not be updated any more. An error says what the kernel lacks.
// Sockets is the number of sockets that may meet at a time.
func Open(datapath *load.Objects, cgroup string, sockets uint32, log *slog.Logger) (_ *SameNode, err error) {
	s := &SameNode{datapath: datapath, cgroup: cgroup, log: log}
	spec, err := bpf.LoadSameNode()
	if err != nil {
		return nil, fmt.Errorf("read object of same-node sockets: %w", err)
	}
	if sockets > 0 {
		spec.Maps[bpf.SameNodeMapSnSockets].MaxEntries = sockets
	}
	replacements, err := s.share(spec)
	if err != nil {
		return nil, err
	}
	active, err := openActive(datapath.Config.Root)
	if err != nil {
		return nil, err
	}
	if active != nil {
		defer active.Close()
		replacements[bpf.SameNodeMapSnActive] = active
		if err := active.Lookup(uint32(0), &s.number); err != nil {
			return nil, fmt.Errorf("read map %s: %w", bpf.SameNodeMapSnActive, err)
		}
	}
	s.number++
	if active != nil {
		if err := active.Put(uint32(0), s.number); err != nil {
			return nil, fmt.Errorf("write map %s: %w", bpf.SameNodeMapSnActive, err)
		}
	}
	for name, value := range map[string]any{
		bpf.SameNodeVarConfigPolicy:         datapath.Config.Policy,
		bpf.SameNodeVarConfigFlows:          uint32(datapath.Config.Flows),
		bpf.SameNodeVarConfigSameNodeNumber: s.number,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := spec.LoadAndAssign(&s.objects, &ebpf.CollectionOptions{MapReplacements: replacements}); err != nil {
		return nil, fmt.Errorf("load programs of same-node sockets: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.list, err = link.AttachIter(link.IterOptions{Program: s.programs.List, Map: s.Storage}); err != nil {
		return nil, fmt.Errorf("attach %s: %w", bpf.SameNodeProgListSameNode, err)
	}
	if s.destroy, s.noDestroy = openDestroyer(s); s.noDestroy != nil {
		log.Info("same-node sockets are not destroyed when policies revoke them: they go back to packets, which are dropped", "reason", s.noDestroy)
	}
	return s, nil
}

// share returns the datapath's maps and gives their sizes to the object. Without policies and flows of all pods the
// programs use none but the generations.
func (s *SameNode) share(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	all := map[string]*ebpf.Map{}
	for _, name := range shared {
		m := s.datapath.ByName[name]
		if m == nil {
			return nil, fmt.Errorf("the datapath has no map %s", name)
		}
		spec.Maps[name].MaxEntries = m.MaxEntries()
		all[name] = m
	}
	return all, nil
}

// openActive opens the pinned map sn_active; nil if there is none.
func openActive(root string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(Dir(root), pinActive), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned map %s: %w", pinActive, err)
	}
	return m, nil
}

// Programs describes the loaded programs.
func (s *SameNode) Programs() ([]table.ProgramInfo, error) {
	var all []table.ProgramInfo
	for _, p := range []struct {
		name    string
		program *ebpf.Program
	}{{bpf.SameNodeProgSameNodeOpen, s.programs.Open}, {bpf.SameNodeProgSameNodeSend, s.programs.Send}, {bpf.SameNodeProgListSameNode, s.programs.List}} {
		info, err := table.DescribeProgram(p.name, p.program)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// Maps describes the maps with their memory.
func (s *SameNode) Maps() ([]table.MapInfo, error) {
	var all []table.MapInfo
	for _, m := range []struct {
		name string
		m    *ebpf.Map
	}{
		{bpf.SameNodeMapSnPods, s.Pods}, {bpf.SameNodeMapSnShares, s.Shares}, {bpf.SameNodeMapSnSockets, s.maps.Sockets},
		{bpf.SameNodeMapSnStorage, s.Storage}, {bpf.SameNodeMapSnCounts, s.maps.Counts}, {bpf.SameNodeMapSnActive, s.Active},
		{bpf.SameNodeMapSnRevoked, s.Revoked},
	} {
		info, err := table.DescribeMap(m.name, m.m)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// Close releases the agent's references; what is pinned keeps working.
func (s *SameNode) Close() error {
	var errs []error
	for _, p := range []*ebpf.Program{s.programs.Open, s.programs.Send, s.programs.List} {
		errs = append(errs, p.Close())
	}
	for _, m := range []*ebpf.Map{s.Pods, s.Shares, s.maps.Sockets, s.Storage, s.maps.Counts, s.Active, s.Revoked} {
		errs = append(errs, m.Close())
	}
	if s.list != nil {
		errs = append(errs, s.list.Close())
	}
	if s.destroy != nil {
		errs = append(errs, s.destroy.close())
	}
	return errors.Join(errs...)
}
