/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Creates the NAT entries of a new connection, one for each direction, unless the reply tuple is taken. */
#pragma once

#include "lib/nat/nat_pending.h"
#include "lib/nat/nat_ports.h"
#include "lib/nat/nat_state.h"

/*
 * Whether the entry that has the reply tuple may be evicted: closed, expired, or of lower priority. `pending`: it
 * is in `nat_pending`.
 */
static __always_inline bool nat_may_evict(const struct nat_new *fresh, const struct nat_entry *taken,
					  enum nat_evict who, bool pending)
{
	if (nat_is_reply_of(taken, &fresh->key) || nat_expired(&fresh->reply_tuple, taken, pending))
		return true;
	if (who == NAT_EVICT_SHARE || who == NAT_EVICT_STREAMS)
		return nat_port_may_evict(fresh, taken, who, pending);
	return pending ? who == NAT_EVICT_UNREPLIED
		       : who != NAT_EVICT_NONE && nat_is_closed(&fresh->reply_tuple, taken);
}

/* Makes the reply tuple free in `nat`, if possible. */
static __always_inline bool nat_free_reply_key(struct nat_new *fresh, enum nat_evict who)
{
	const struct nat_entry *taken = bpf_map_lookup_elem(&nat, &fresh->reply_tuple);

	if (!taken)
		return true;
	if (!nat_may_evict(fresh, taken, who, false))
		return false;
	nat_delete(&fresh->reply_tuple, taken);
	return true;
}

/*
 * Creates the connection in `nat_scratch` with exactly the addresses and ports of its `to`. NAT_ALLOC_TAKEN if the
 * reply tuple belongs to another connection.
 */
GLOBAL_FN enum nat_alloc_result nat_alloc(enum nat_evict who)
{
	struct nat_state *state = nat_state_get(); /* looked up again: map values may be keys, arguments may not */
	const struct nat_entry *taken;
	struct nat_new *fresh;

	if (!state)
		return NAT_ALLOC_FULL;
	fresh = &state->fresh;
	fresh->to.seen = ktime_coarse();
	fresh->to.packets = 1;
	fresh->to.created = nat_clock(fresh->to.seen);
	nat_reply_key(&fresh->reply_tuple, &fresh->to, fresh->key.protocol);
	nat_reply_value(&fresh->reply, &fresh->key, &fresh->to);
	if (fresh->to.flags & NAT_DSR)
		return bpf_map_update_elem(&nat_pending, &fresh->key, &fresh->to, BPF_ANY) ? NAT_ALLOC_FULL
											   : NAT_ALLOC_OK;
	if (!nat_free_reply_key(fresh, who))
		return NAT_ALLOC_TAKEN;
	if (bpf_map_update_elem(&nat_pending, &fresh->reply_tuple, &fresh->reply, BPF_NOEXIST)) {
		taken = bpf_map_lookup_elem(&nat_pending, &fresh->reply_tuple);
		if (taken && !nat_may_evict(fresh, taken, who, true))
			return NAT_ALLOC_TAKEN;
		if (taken && !nat_is_reply_of(taken, &fresh->key))
			nat_delete(&fresh->reply_tuple, taken);
		if (bpf_map_update_elem(&nat_pending, &fresh->reply_tuple, &fresh->reply, BPF_ANY))
			return NAT_ALLOC_FULL;
	}
	/* Another CPU may have established the owner of the reply tuple meanwhile. */
	taken = bpf_map_lookup_elem(&nat, &fresh->reply_tuple);
	if (taken && !nat_is_reply_of(taken, &fresh->key)) {
		bpf_map_delete_elem(&nat_pending, &fresh->reply_tuple);
		return NAT_ALLOC_TAKEN;
	}
	return bpf_map_update_elem(&nat_pending, &fresh->key, &fresh->to, BPF_ANY) ? NAT_ALLOC_FULL : NAT_ALLOC_OK;
}
