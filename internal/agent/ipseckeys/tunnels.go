package ipseckeys

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
)

// DefaultLedger is where agents keep the Ledger. It outlives agents, and no reboot.
const DefaultLedger = "/run/beeline/ipsec.json"

// goneFor is how long the tunnels of a Node that was deleted stay.
const goneFor = 10 * time.Minute

// Config says where the files are.
type Config struct {
	// Node is the name of this node.
	Node string
	// Keys is the file of the cluster's keys: see ReadKeys. Ledger is the file of the Ledger.
	Keys, Ledger string
}

// Tunnels decides which tunnels this node needs. Its caller serializes calls.
type Tunnels struct {
	config Config
	ring   keyring
	ledger *Ledger
	// fresh are the generations that the last plan has made tunnels of, by the peer's name.
	fresh map[string][]Generation
}

// New makes Tunnels. It reads nothing.
func New(c Config) *Tunnels { return &Tunnels{config: c} }

// Peer is another node.
type Peer struct {
	Name string
	// Announced is the text that its agent has announced: see Announcement.
	Announced string
	// Local and Remote are the outer addresses, Prefixes what is sent to the node.
	Local, Remote netip.Addr
	Prefixes      []netip.Prefix
}

// Tunnel is what leads to a peer and back.
type Tunnel struct {
	ipsec.Peer
	// Generation is that of the key in use.
	Generation Generation
}

// Input is what a plan depends on, beside the files.
type Input struct {
	Peers []Peer
	// Unreachable are the names of other nodes that no tunnel can lead to now. Their tunnels stay.
	Unreachable []string
	// Addresses are those of this node's own Node object, in order; none if they are unknown.
	Addresses []netip.Addr
	// Created is the time of this node's own Node object. Partial says that further peers may exist, and that Created may be
	// unknown.
	Created time.Time
	Partial bool
	// Has reports whether the kernel has the state of a tunnel.
	Has func(to netip.Addr, spi uint32) bool
	Now time.Time
}

// Plan is the tunnels that are needed.
type Plan struct {
	// Peers are for ipsec.Sync.
	Peers []ipsec.Peer
	// Announce is to be announced when the tunnels exist.
	Announce Announcement
	// Named are the peers that packets are sent to, by name.
	Named map[string]Tunnel
	// Wrong says why there is no tunnel to a peer.
	Wrong map[string]string
	// Problem is why the file of keys was not taken over; the former keys stay in use.
	Problem error
}

// Plan reads the files and plans. It has saved the Ledger when it returns: its caller may make the tunnels.
func (t *Tunnels) Plan(in Input) (p Plan, err error) {
	file, problem := ReadKeys(t.config.Keys)
	if problem == nil {
		problem = t.ring.update(file, in.Now)
	}
	if len(t.ring.keys) == 0 {
		return p, problem
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return p, fmt.Errorf("read the boot ID: %w", err)
	}
	changed, err := t.open(strings.TrimSpace(string(boot)), in)
	if err != nil {
		return p, err
	}
	p, altered, lost := t.build(in)
	if lost || t.ledger.full() {
		if t.ledger, err = newLedger(t.ledger.Boot, t.ledger.Created); err != nil {
			return p, err
		}
		t.ledger.stay(in.Addresses)
		changed = true
		if p, altered, lost = t.build(in); lost {
			return p, errors.New("two IPsec tunnels have the same SPI")
		}
	}
	if changed || altered {
		if err := t.ledger.save(t.config.Ledger); err != nil {
			t.ledger = nil // what the disk has is what counts
			return p, err
		}
	}
	p.Problem = problem
	return p, nil
}

// Renew begins a new epoch with the next plan.
func (t *Tunnels) Renew() error {
	t.ledger = nil
	if err := os.Remove(t.config.Ledger); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("end the epoch of IPsec: %w", err)
	}
	return nil
}

// NotMade notes that the kernel has refused the new tunnels of the last plan to these peers. No packet was sent with their keys,
// so that another plan may have them again.
func (t *Tunnels) NotMade(refused map[string]error) error {
	changed := false
	for name := range refused {
		fresh := t.fresh[name]
		changed = changed || len(fresh) > 0
		l := t.ledger.Peers[name]
		l.Made = slices.DeleteFunc(l.Made, func(g Generation) bool { return slices.Contains(fresh, g) })
	}
	if !changed {
		return nil
	}
	err := t.ledger.save(t.config.Ledger)
	if err != nil {
		t.ledger = nil // what the disk has is what counts
	}
	return err
}

// open reads the ledger, or begins an epoch. With a part of the cluster it takes over what is there: whether the Node object is
// still the same is seen later.
func (t *Tunnels) open(boot string, in Input) (changed bool, err error) {
	if t.ledger == nil {
		l, ok, err := readLedger(t.config.Ledger, boot)
		if err != nil {
			return false, err
		}
		if ok {
			t.ledger = l
		}
	}
	if t.ledger != nil && (in.Partial || t.ledger.Created.Equal(in.Created)) && !t.ledger.moved(in.Addresses) {
		return t.ledger.stay(in.Addresses), nil
	}
	if t.ledger, err = newLedger(boot, in.Created); err != nil {
		return false, err
	}
	t.ledger.stay(in.Addresses)
	return true, nil
}

// build plans with the present ledger, and notes in it what is going to be made. lost says that a tunnel that was made is not
// there any more, or that two would have one SPI.
func (t *Tunnels) build(in Input) (p Plan, changed, lost bool) {
	p = Plan{Named: map[string]Tunnel{}, Wrong: map[string]string{}, Announce: Announcement{t.ledger.Epoch, t.ring.generations()}}
	t.fresh = map[string][]Generation{}
	present, exist, spis := map[string]bool{}, map[string]bool{}, map[uint32]bool{}
	for _, name := range in.Unreachable {
		exist[name] = true
	}
	for _, peer := range in.Peers {
		exist[peer.Name] = true // one that announces something wrong may announce again what it had before
		a, err := parseOf(peer)
		if err != nil {
			p.Wrong[peer.Name] = err.Error()
			continue
		}
		met, err := t.ledger.meet(peer.Name, a.Epoch, peer.Remote)
		if err != nil {
			p.Wrong[peer.Name] = err.Error()
			continue
		}
		present[peer.Name] = true
		l := t.ledger.Peers[peer.Name]
		changed = changed || met || l.Local != peer.Local || l.Remote != peer.Remote
		l.Local, l.Remote = peer.Local, peer.Remote
		made, gone, anew := t.make(peer.Name, l, in.Has, spis)
		changed, lost = changed || anew, lost || gone
		if use, g := inUse(made, a.Generations); g != 0 {
			made.peer.Use, made.peer.Prefixes = use, peer.Prefixes
			p.Named[peer.Name] = Tunnel{made.peer, g}
		} else {
			p.Wrong[peer.Name] = fmt.Sprintf("it has no key of IPsec that this node has: generations %v there, %v here", a.Generations, t.ring.generations())
		}
		p.Peers = append(p.Peers, made.peer)
	}
	if in.Partial {
		return p, changed, lost
	}
	kept, parted := t.ledger.part(present, exist, in.Now)
	for _, name := range kept {
		made, gone, anew := t.make(name, t.ledger.Peers[name], in.Has, spis)
		parted, lost = parted || anew, lost || gone
		p.Peers = append(p.Peers, made.peer)
	}
	return p, changed || parted, lost
}

func parseOf(peer Peer) (a Announcement, err error) {
	if peer.Announced == "" {
		return a, fmt.Errorf("it has announced no keys (annotation %s): its agent runs without --encryption=ipsec, or has not started yet", v1alpha1.AnnotationIPsec)
	}
	if a, err = ParseAnnouncement(peer.Announced); err != nil {
		return a, fmt.Errorf("its annotation %s is wrong: %w", v1alpha1.AnnotationIPsec, err)
	}
	return a, nil
}

// made are the tunnels of one peer, and of each generation those that are sent by.
type made struct {
	peer ipsec.Peer
	out  map[Generation][]ipsec.Tunnel
}

// make derives the tunnels to a peer, of all keys: the peer chooses by which one it sends, and must find it there.
func (t *Tunnels) make(name string, l *peerLedger, has func(netip.Addr, uint32) bool, spis map[uint32]bool) (m made, lost, changed bool) {
	m = made{ipsec.Peer{Name: name, Local: l.Local, Remote: l.Remote}, map[Generation][]ipsec.Tunnel{}}
	own, other := End{t.config.Node, t.ledger.Epoch}, End{name, l.Epoch}
	for _, k := range t.ring.keys {
		in, out := k.tunnels(other, own), k.tunnels(own, other)
		before := slices.Contains(l.Made, k.Generation)
		for i := range in {
			lost, spis[in[i].SPI] = lost || spis[in[i].SPI], true
			in[i].Made, out[i].Made = before, before
		}
		m.peer.In, m.peer.Out, m.out[k.Generation] = append(m.peer.In, in...), append(m.peer.Out, out...), out
		if !before {
			l.Made, t.fresh[name], changed = append(l.Made, k.Generation), append(t.fresh[name], k.Generation), true
			continue
		}
		missing := func(to netip.Addr) func(ipsec.Tunnel) bool {
			return func(tunnel ipsec.Tunnel) bool { return !has(to, tunnel.SPI) }
		}
		lost = lost || slices.ContainsFunc(in, missing(l.Local)) || slices.ContainsFunc(out, missing(l.Remote))
	}
	return m, lost, changed
}

// inUse are the tunnels to send by: those of the highest generation that both have; 0 without.
func inUse(m made, theirs []Generation) (use map[bool]uint32, g Generation) {
	for _, g := range theirs { // the highest first
		tunnels, both := m.out[g]
		if !both {
			continue
		}
		use = map[bool]uint32{}
		for _, tunnel := range tunnels {
			use[tunnel.IPv6] = tunnel.SPI
		}
		return use, g
	}
	return nil, 0
}
