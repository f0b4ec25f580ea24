package ipclaim

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Release says that an attachment has no endpoint any more, or never got one. Run releases its claims, as often as
// needed: an API server that is away does not keep a pod from being deleted. A claim that another attachment has taken
// over meanwhile stays.
func (a *Allocator) Release(att Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.attachments[att]
	if at == nil {
		if a.Synced() && len(a.index.held[att]) == 0 {
			return // most attachments have no address of a pool
		}
		at = &attachment{}
		a.attachments[att] = at
	}
	at.state = releasing
	a.wake()
}

// Abandon says that an ADD has failed after Allocate. If a DEL and another ADD of the same container have followed, and that one's
// endpoint exists, its claims stay.
func (a *Allocator) Abandon(att Attachment) {
	a.mu.Lock()
	at := a.attachments[att]
	a.mu.Unlock()
	a.abandon(att, at)
}

// abandon releases what an attachment has, unless it has an endpoint or another one has replaced it.
func (a *Allocator) abandon(att Attachment, at *attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at == nil || a.attachments[att] != at || at.state == live {
		return
	}
	at.state = releasing
	a.wake()
}

// release releases the claims of attachments that are being deleted.
func (a *Allocator) release(ctx context.Context) error {
	a.mu.Lock()
	var due []Attachment
	for att, at := range a.attachments {
		if at.state == releasing {
			due = append(due, att)
		}
	}
	a.mu.Unlock()
	slices.SortFunc(due, Attachment.compare)
	return a.eachOf(len(due), func(i int) error { return a.releaseAll(ctx, due[i]) })
}

// releasesMax is how many claims are released at once.
const releasesMax = 16

// eachOf calls do for each of count numbers, some at once, and joins the errors.
func (a *Allocator) eachOf(count int, do func(i int) error) error {
	errs := make([]error, count)
	for begin := 0; begin < count; begin += releasesMax {
		a.together(min(releasesMax, count-begin), func(i int) { errs[begin+i] = do(begin + i) })
	}
	return errors.Join(errs...)
}

// releaseAll releases all claims of an attachment.
func (a *Allocator) releaseAll(ctx context.Context, att Attachment) error {
	a.mu.Lock()
	at := a.attachments[att]
	if at == nil || at.state != releasing {
		a.mu.Unlock()
		return nil
	}
	addresses := slices.AppendSeq(slices.Clone(at.addresses), maps.Keys(a.index.held[att]))
	a.mu.Unlock()
	if err := a.releaseEach(ctx, att, at, addresses); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attachments[att] == at && at.state == releasing {
		delete(a.attachments, att)
	}
	return nil
}

// giveBack releases what an attachment has got so far; its ADD goes on.
func (a *Allocator) giveBack(ctx context.Context, att Attachment, at *attachment) error {
	a.mu.Lock()
	addresses := slices.Clone(at.addresses)
	a.mu.Unlock()
	if err := a.releaseEach(ctx, att, at, addresses); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at.addresses = nil
	return nil
}

func (a *Allocator) releaseEach(ctx context.Context, att Attachment, at *attachment, addresses []netip.Addr) error {
	slices.SortFunc(addresses, netip.Addr.Compare)
	var errs []error
	for _, addr := range slices.Compact(addresses) {
		errs = append(errs, a.releaseOne(ctx, att, at, addr))
	}
	return errors.Join(errs...)
}

// releaseOne releases one claim, if it still is that of the attachment.
func (a *Allocator) releaseOne(ctx context.Context, att Attachment, at *attachment, addr netip.Addr) error {
	// Most claims are as the index has them, which saves a request. The store rejects the change of an older state.
	for c := a.claim(addr); ; c = nil {
		if c == nil || !isOf(c, a.Node, att) {
			var err error
			if c, err = a.Store.Get(ctx, addr); err != nil {
				return err
			}
		}
		if c == nil || !isOf(c, a.Node, att) {
			return nil
		}
		// After reading the claim: an ADD of the same container that begins now changes it, and its Version.
		if a.isReplaced(att, at) {
			return nil
		}
		if err := a.end(ctx, c, c.StatefulSet != ""); !errors.Is(err, cluster.ErrClaimChanged) {
			return err
		}
	}
}

func (a *Allocator) isReplaced(att Attachment, at *attachment) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attachments[att] != at
}

// end releases a claim, or keeps it without an attachment.
func (a *Allocator) end(ctx context.Context, c *cluster.IPClaim, keep bool) error {
	if keep {
		kept := *c
		kept.ContainerID = ""
		updated, err := a.Store.Update(ctx, &kept)
		if err == nil {
			a.Set(updated)
		}
		return err
	}
	if err := a.Store.Delete(ctx, c); err != nil {
		return err
	}
	a.Remove(c.Address)
	return nil
}
