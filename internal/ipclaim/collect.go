package ipclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ippool"
)

const (
	// conflictTime is how long an address is not tried again after a conflict.
	conflictTime = 10 * time.Minute
	// checksMax bounds how many claims without an attachment, and how many nodes, one pass asks about. The next pass
	// continues behind them.
	checksMax = 200
)

// collectOwn releases the claims of this node whose attachment is unknown and whose pod is gone: an earlier agent died
// within an ADD, or before it could release them.
func (a *Allocator) collectOwn(ctx context.Context) error {
	a.mu.Lock()
	var unknown []*cluster.IPClaim
	for att, addresses := range a.index.held {
		if a.attachments[att] != nil {
			continue
		}
		for addr := range addresses {
			if a.unknown[addr] {
				continue // an endpoint has it, whose file was lost
			}
			unknown = append(unknown, a.index.claims[addr])
		}
	}
	a.mu.Unlock()
	slices.SortFunc(unknown, byAddress)
	return a.eachOf(len(unknown), func(i int) error {
		exists, err := a.podExists(ctx, unknown[i])
		if err != nil || exists && !a.isSecond(unknown[i]) {
			return err // its next ADD takes the claim over
		}
		return a.discard(ctx, unknown[i])
	})
}

// podExists asks whether the pod of a claim exists and has not ended.
func (a *Allocator) podExists(ctx context.Context, c *cluster.IPClaim) (bool, error) {
	if c.Pod == "" {
		return false, nil
	}
	pod, err := a.Facts.Pod(ctx, podOf(c))
	if err != nil {
		return false, fmt.Errorf("release %s: %w", c.Address, err)
	}
	return pod != nil && !pod.Ended && (c.PodUID == "" || pod.UID == cluster.NewUID(c.PodUID)), nil
}

// isSecond reports whether the pod of a claim has another address of the same family, in an attachment that has an
// endpoint: then no ADD takes the claim over.
func (a *Allocator) isSecond(c *cluster.IPClaim) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for att, at := range a.attachments {
		if at.state != live || at.pod != podOf(c) || at.podUID != c.PodUID || att.IfName != c.IfName {
			continue
		}
		for _, addr := range at.addresses {
			if addr != c.Address && ippool.FamilyOf(addr) == ippool.FamilyOf(c.Address) {
				return true
			}
		}
	}
	return false
}

// discard releases a claim whose pod is gone, or keeps it if its StatefulSet still has a pod of that name. A claim that
// has changed since stays.
func (a *Allocator) discard(ctx context.Context, c *cluster.IPClaim) error {
	keep, err := a.isWanted(ctx, c)
	if err != nil {
		return err
	}
	a.mu.Lock()
	taken := c.Node == a.Node && c.Bound() && a.attachments[attachmentOf(c)] != nil
	a.mu.Unlock()
	if taken || keep && !c.Bound() {
		return nil
	}
	if err := a.end(ctx, c, keep); err != nil && !errors.Is(err, cluster.ErrClaimChanged) {
		return err
	}
	a.Log.Info("address released: its pod is gone", "address", c.Address, "pod", podOf(c).String(), "node", c.Node, "kept", keep)
	return nil
}

// isWanted reports whether a StatefulSet keeps the address of a claim: it exists, and its pods have the ordinal.
func (a *Allocator) isWanted(ctx context.Context, c *cluster.IPClaim) (bool, error) {
	if c.StatefulSet == "" {
		return false, nil
	}
	ordinal, ok := ordinalOf(c)
	if !ok {
		return false, nil
	}
	first, count, err := a.Facts.Ordinals(ctx, cluster.Key{Namespace: c.Namespace, Name: c.StatefulSet})
	if err != nil {
		return false, fmt.Errorf("release %s: %w", c.Address, err)
	}
	return ordinal >= first && ordinal-first < count, nil
}

// ordinalOf gives the ordinal in the name of a StatefulSet's pod.
func ordinalOf(c *cluster.IPClaim) (int, bool) {
	digits, ok := strings.CutPrefix(c.Pod, c.StatefulSet+"-")
	if !ok {
		return 0, false
	}
	ordinal, err := strconv.Atoi(digits)
	return ordinal, err == nil && ordinal >= 0
}

// collectOthers releases the claims that no node has for itself: of nodes that are gone, kept ones that no StatefulSet
// wants any more or that no pool has, and conflicts that are over. One of the nodes does it.
func (a *Allocator) collectOthers(ctx context.Context) error {
	if !a.Elected(cluster.Key{Name: "ipclaims"}) {
		return nil
	}
	a.mu.Lock()
	var of []*cluster.IPClaim
	for _, c := range a.index.claims {
		switch {
		case c.Bound() && c.Node != a.Node && a.MayBeGone(c.Node), !c.Bound():
			of = append(of, c)
		}
	}
	set := a.index.set
	a.mu.Unlock()
	slices.SortFunc(of, byAddress)
	of = a.share(of)
	gone := map[string]bool{}
	var errs []error
	for _, c := range of {
		errs = append(errs, a.collectOther(ctx, c, set, gone))
	}
	return errors.Join(errs...)
}

// share gives the claims that this pass looks at.
func (a *Allocator) share(all []*cluster.IPClaim) []*cluster.IPClaim {
	if len(all) <= checksMax {
		return all
	}
	at, _ := slices.BinarySearchFunc(all, a.collected, func(c *cluster.IPClaim, last cluster.Key) int { return c.Address.Compare(addressOf(last)) })
	share := append(slices.Clone(all[at:]), all[:at]...)[:checksMax]
	a.collected = share[checksMax-1].Key()
	return share
}

func (a *Allocator) collectOther(ctx context.Context, c *cluster.IPClaim, set *ippool.Set, gone map[string]bool) error {
	if c.Conflicts() {
		if a.Now().Sub(c.Conflict) < conflictTime {
			return nil
		}
		return a.endUnlessChanged(ctx, c)
	}
	if c.Bound() {
		isGone, known := gone[c.Node]
		if !known {
			var err error
			if isGone, err = a.Facts.NodeGone(ctx, c.Node); err != nil {
				return fmt.Errorf("release %s: %w", c.Address, err)
			}
			gone[c.Node] = isGone
		}
		if !isGone {
			return nil
		}
	}
	p := set.Pool(c.Pool)
	outside := a.PoolsKnown() && (p == nil || p.Invalid == "" && !p.Contains(c.Address))
	if !c.Bound() && (outside || a.isReplacedBy(c)) {
		return a.endUnlessChanged(ctx, c) // its pod has, or gets, another address
	}
	exists, err := a.podExists(ctx, c)
	if err != nil || exists {
		return err
	}
	return a.discard(ctx, c)
}

func byAddress(x, y *cluster.IPClaim) int { return x.Address.Compare(y.Address) }

// isReplacedBy reports whether the pod that an address is kept for has got another one: its node did not know of this one
// yet, or its pool is another one now.
func (a *Allocator) isReplacedBy(kept *cluster.IPClaim) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr := range a.index.pods[podOf(kept)] {
		c := a.index.claims[addr]
		if c.Bound() && c.IfName == kept.IfName && ippool.FamilyOf(addr) == ippool.FamilyOf(kept.Address) {
			return true
		}
	}
	return false
}

func (a *Allocator) endUnlessChanged(ctx context.Context, c *cluster.IPClaim) error {
	if err := a.end(ctx, c, false); err != nil && !errors.Is(err, cluster.ErrClaimChanged) {
		return err
	}
	return nil
}
