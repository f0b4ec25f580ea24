package ipclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Lost is an attachment with an address that another pod has.
type Lost struct {
	Attachment
	Address netip.Addr
	// Reason is a sentence that names the address and who has it.
	Reason string
}

// Lost gives the attachments whose addresses other pods have, sorted by address. This happens to a node that was taken for
// dead: its Node was deleted while its pods ran.
func (a *Allocator) Lost() (all []Lost) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for att, at := range a.attachments {
		for addr, reason := range at.lost {
			all = append(all, Lost{att, addr, reason})
		}
	}
	slices.SortFunc(all, func(x, y Lost) int { return x.Address.Compare(y.Address) })
	return all
}

// heal makes the claims of live attachments again that somebody has deleted, and finds those that are lost.
func (a *Allocator) heal(ctx context.Context) error {
	type missing struct {
		att  Attachment
		at   *attachment
		addr netip.Addr
	}
	a.mu.Lock()
	var all []missing
	for att, at := range a.attachments {
		if at.state != live {
			continue
		}
		maps.DeleteFunc(at.lost, func(addr netip.Addr, _ string) bool {
			c := a.index.claims[addr]
			return c != nil && isOf(c, a.Node, att)
		})
		for _, addr := range at.addresses {
			if c := a.index.claims[addr]; c == nil || !isOf(c, a.Node, att) {
				all = append(all, missing{att, at, addr})
			}
		}
	}
	a.mu.Unlock()
	slices.SortFunc(all, func(x, y missing) int { return cmp.Or(x.att.compare(y.att), x.addr.Compare(y.addr)) })
	var errs []error
	for _, m := range all {
		errs = append(errs, a.healOne(ctx, m.att, m.at, m.addr))
	}
	return errors.Join(errs...)
}

func (a *Allocator) healOne(ctx context.Context, att Attachment, at *attachment, addr netip.Addr) error {
	now, err := a.Store.Get(ctx, addr)
	if err != nil {
		return err
	}
	if a.isReplaced(att, at) {
		return nil
	}
	r := Request{Namespace: at.pod.Namespace, Pod: at.pod.Name, PodUID: at.podUID, StatefulSet: at.statefulSet}
	switch {
	case now == nil:
		next := &cluster.IPClaim{Address: addr, Pool: at.pool}
		bind(next, a.Node, att, r)
		if now, err = a.Store.Create(ctx, next); err != nil {
			return err // the next pass looks again
		}
		a.Log.Warn("claim made again, somebody has deleted it", "address", addr, "pod", at.pod.String())
	case isOf(now, a.Node, att):
	case !now.Bound() && !now.Conflicts() && podOf(now) == at.pod && now.PodUID == at.podUID:
		next := *now
		bind(&next, a.Node, att, r)
		if now, err = a.Store.Update(ctx, &next); err != nil {
			return err
		}
	default:
		a.lose(att, at, now)
		return nil
	}
	a.Set(now)
	return nil
}

func (a *Allocator) lose(att Attachment, at *attachment, now *cluster.IPClaim) {
	reason := fmt.Sprintf("address %s of pod %s is allocated to pod %s on node %s", now.Address, at.pod, podOf(now), now.Node)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attachments[att] != at || at.lost[now.Address] == reason {
		return
	}
	if at.lost == nil {
		at.lost = map[netip.Addr]string{}
	}
	at.lost[now.Address] = reason
	a.Log.Error("address lost: its claim was taken over while this node was taken for dead", "problem", reason)
}
