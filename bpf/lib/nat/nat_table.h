/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of established connections: lookup, and the TCP state. Shared by tc and XDP. A packet is looked up by
 * nat_find, then by nat_find_pending; for a new connection the caller fills a struct nat_new and calls nat_alloc
 * (nat_alloc.h).
 */
#pragma once

#include "lib/nat/nat_timeout.h"

/*
 * How long a SYN may wait for a reply: less than its retransmission timeout, more than the interval of Linux'
 * challenge ACKs (500 ms).
 */
#define NAT_CHALLENGE_INTERVAL (NSEC_PER_SEC / 4 * 3)

/* Stored in `seen` of the reply direction: the number of unreplied SYNs, minus one. */
#define NAT_SYN_UNREPLIED 1

/*
 * Whether a SYN starts a new connection in place of an old one: both ends have closed it, the other end has reset
 * it, or it has not replied to the last two SYNs. These are forwarded: an end that still has the connection sends
 * a challenge ACK (RFC 5961, 4), others accept or reset.
 */
GLOBAL_FN bool nat_syn_reopens(const struct tuple *t, struct nat_entry *to)
{
	__u64 now = ktime_coarse();
	struct nat_entry *back;
	struct tuple reply_tuple;

	if (!t || !to)
		return false;
	nat_reply_key(&reply_tuple, to, t->protocol);
	back = bpf_map_lookup_elem(&nat, &reply_tuple);
	if (!back)
		return to->flags & NAT_CLOSED;
	if (back->flags & NAT_RESET || nat_closed_by_both(to, back))
		return true;
	if (back->seen > NAT_SYN_UNREPLIED) {
		back->seen = 0;
	} else if (now - to->seen < NAT_CHALLENGE_INTERVAL) {
		return false;
	} else if (back->seen++ == NAT_SYN_UNREPLIED) {
		return true;
	}
	to->seen = now;
	return false;
}

/*
 * Records a FIN. The end that was connected to, if it closes first, keeps the tuple in TIME-WAIT and rejects SYNs
 * of another client whose sequence numbers and timestamps are not higher (RFC 6191). So its SNAT port is not
 * reused meanwhile.
 */
GLOBAL_FN int nat_note_fin(const struct transport *t, struct nat_entry *entry)
{
	struct nat_entry *back;
	struct tuple reply_tuple;

	if (!t || !entry)
		return 0;
	if (!(entry->flags & (NAT_INITIATOR | NAT_FIN)) &&
	    !address_equals(&entry->destination, &t->tuple.destination)) {
		nat_reply_key(&reply_tuple, entry, t->tuple.protocol);
		back = bpf_map_lookup_elem(&nat, &reply_tuple);
		if (back && !(back->flags & NAT_FIN)) {
			back->flags |= NAT_TIME_WAIT;
			entry->flags |= NAT_TIME_WAIT;
		}
	}
	entry->flags |= NAT_FIN;
	return 0;
}

/*
 * Records TCP flags. Returns false, and deletes the entry, if a SYN starts a new connection. A connection that
 * goes on after a RST was not reset: the RST was forged.
 */
GLOBAL_FN bool nat_note_flags(const struct transport *t, struct nat_entry *entry)
{
	if (!t || !entry)
		return false;
	if (transport_is_syn(t) && nat_syn_reopens(&t->tuple, entry)) {
		nat_delete(&t->tuple, entry);
		return false;
	}
	if (t->flags & TCP_SYN)
		entry->flags &= ~(NAT_FIN | NAT_TIME_WAIT);
	if (t->flags & TCP_RST) {
		entry->flags |= NAT_RESET;
		entry->seen =
			ktime_coarse(); /* exact, so that later packets of the other end show that it ignored the RST */
	} else {
		entry->flags &= ~NAT_RESET;
	}
	if (t->flags & TCP_FIN)
		nat_note_fin(t, entry);
	return true;
}

/*
 * Looks up an established connection and records the packet. The pointer is into `nat` and valid until the program
 * returns.
 */
static __always_inline struct nat_entry *nat_find(const struct transport *t, __u64 now)
{
	struct nat_entry *entry = bpf_map_lookup_elem(&nat, &t->tuple);

	if (!entry)
		return 0;
	if (unlikely(t->flags & (TCP_SYN | TCP_FIN | TCP_RST) || entry->flags & NAT_RESET) && !nat_note_flags(t, entry))
		return 0;
	if (unlikely(now - entry->seen >= NSEC_PER_SEC))
		nat_touch(entry, t->tuple.protocol, now);
	return entry;
}
