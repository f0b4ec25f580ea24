/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When a NAT entry is closed or expired. */
#pragma once

#include "lib/nat/nat_entry.h"

/* Flags by which an end closes the connection. */
#define NAT_CLOSED (NAT_FIN | NAT_RESET)

/* One RST does not close a connection: it may be forged (RFC 5961, 1.2), and only the receiver can tell. */
static __always_inline bool nat_closed_by_both(const struct nat_entry *to, const struct nat_entry *back)
{
	return to->flags & NAT_CLOSED && back->flags & NAT_CLOSED;
}

/*
 * TCP and SCTP: whether the tuple may be reused. Both ends have closed the connection, or one has reset it and no
 * packet has come for TIMEOUT_TCP_CLOSED.
 */
GLOBAL_FN bool nat_is_closed(const struct tuple *t, const struct nat_entry *to)
{
	__u64 since = ktime_coarse() - TIMEOUT_TCP_CLOSED * NSEC_PER_SEC;
	const struct nat_entry *back;
	struct tuple reply_tuple;

	if (!t || !to || !transport_has_flags(t->protocol))
		return false;
	nat_reply_key(&reply_tuple, to, t->protocol);
	back = bpf_map_lookup_elem(&nat, &reply_tuple);
	if (!back)
		return to->flags & NAT_CLOSED;
	if (nat_closed_by_both(to, back))
		return true;
	return (to->flags | back->flags) & NAT_RESET && to->seen < since && back->seen < since;
}

/*
 * Timeout in seconds by the state of both directions; `back` may be NULL. entry.lasts of internal/datapath does
 * the same.
 */
static __always_inline __u32 nat_timeout(__u8 protocol, const struct nat_entry *entry, const struct nat_entry *back,
					 bool pending)
{
	__u8 theirs = back ? back->flags : 0, both = entry->flags | theirs;

	if (!transport_has_flags(protocol)) {
		if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6)
			return TIMEOUT_NAT_ICMP;
		return entry->flags & (entry->flags & NAT_DSR ? ~0 : theirs) & NAT_STREAM ? TIMEOUT_NAT_UDP_STREAM
											  : TIMEOUT_NAT_UDP;
	}
	if ((entry->flags & NAT_CLOSED && theirs & NAT_CLOSED) || (pending && both & NAT_RESET))
		return both & NAT_TIME_WAIT ? TIMEOUT_TCP_TIME_WAIT : TIMEOUT_TCP_CLOSED;
	if (both & NAT_FIN || (entry->flags & NAT_RESET && (!back || back->seen <= entry->seen)) ||
	    (theirs & NAT_RESET && entry->seen <= back->seen))
		return TIMEOUT_TCP_CLOSING;
	if (!pending || (entry->flags & NAT_DSR && entry->packets > 1))
		return TIMEOUT_TCP;
	return (entry->flags & NAT_INITIATOR ? back && back->packets : entry->packets) ? TIMEOUT_NAT_SYN_RECV
										       : TIMEOUT_NAT_SYN_SENT;
}

/*
 * Whether a connection, one direction of which is *t in `nat_pending` (pending) or `nat`, has expired. The agent
 * deletes expired entries periodically; new connections evict them at once.
 */
GLOBAL_FN bool nat_expired(const struct tuple *t, const struct nat_entry *entry, bool pending)
{
	const struct nat_entry *back = 0;
	__u64 now = ktime_coarse();
	struct tuple reply_tuple;
	__s64 quiet, theirs;

	if (!t || !entry)
		return false;
	quiet = now - entry->seen;
	if (quiet < (__s64)(TIMEOUT_TCP_CLOSED * NSEC_PER_SEC))
		return false;
	if (!(entry->flags & NAT_DSR)) {
		nat_reply_key(&reply_tuple, entry, t->protocol);
		back = bpf_map_lookup_elem(&nat, &reply_tuple);
		if (!back)
			back = bpf_map_lookup_elem(&nat_pending, &reply_tuple);
		if (back && !nat_is_reply_of(back, t))
			back = 0;
		if (!back && !pending)
			return true; /* the other direction was evicted */
	}
	theirs = back ? now - back->seen : quiet;
	return (theirs < quiet ? theirs : quiet) >=
	       (__s64)(nat_timeout(t->protocol, entry, back, pending) * NSEC_PER_SEC);
}
