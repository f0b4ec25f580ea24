/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections that are translated packet by packet: where the two directions of each are kept, how one begins, becomes
 * established and ends. Nothing here knows of packets, so tc and XDP share it. What a connection is to be
 * translated to is the caller's to say.
 *
 * A packet asks nat_find first, then nat_find_pending, and if that finds nothing, whoever wants a
 * connection fills a struct nat_new and calls nat_alloc (claim.h).
 */
#pragma once

#include "lib/nat/nat_timeout.h"

/* How long a SYN waits for its answer: less than until it is sent again, more than between two challenges of Linux (500 ms). */
#define NAT_CHALLENGE_INTERVAL (NSEC_PER_SEC / 4 * 3)

/* Of the direction that should answer, in the place of `seen`: so many SYN less one were not answered. */
#define NAT_SYN_UNREPLIED 1

/*
 * Whether a SYN begins a new connection where there is one already: if both ends have ended that, if the other one has reset it, or if it
 * has not answered the two before, which are passed on to the old one's end. Who has that connection still answers them, at least the
 * second (RFC 5961, 4), and who has forgotten it accepts or refuses.
 */
GLOBAL_FN bool nat_syn_reopens(const struct tuple *t, struct nat_entry *to)
{
	__u64 now = ktime_coarse();
	struct nat_entry *back;
	struct tuple other;

	if (!t || !to)
		return false;
	nat_reply_key(&other, to, t->protocol);
	back = bpf_map_lookup_elem(&nat, &other);
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
 * Notes that an end has sent FIN. If it is the one that was connected to, and the first to do so, it remembers the addresses and ports for
 * a while (TIME-WAIT) and mostly refuses another client's SYN from them, whose sequence numbers and timestamps are not behind
 * (RFC 6191; Linux chooses where timestamps begin by the client's ports too). So a port from here is not given to another one meanwhile.
 */
GLOBAL_FN int nat_note_fin(const struct transport *t, struct nat_entry *entry)
{
	struct nat_entry *back;
	struct tuple other;

	if (!t || !entry)
		return 0;
	if (!(entry->flags & (NAT_INITIATOR | NAT_FIN)) &&
	    !address_equals(&entry->destination, &t->tuple.destination)) {
		nat_reply_key(&other, entry, t->tuple.protocol);
		back = bpf_map_lookup_elem(&nat, &other);
		if (back && !(back->flags & NAT_FIN)) {
			back->flags |= NAT_TIME_WAIT;
			entry->flags |= NAT_TIME_WAIT;
		}
	}
	entry->flags |= NAT_FIN;
	return 0;
}

/*
 * Notes what TCP's flags say, or what is like them. False if the packet begins a new connection where an old one has ended: that is
 * forgotten then. Who has sent RST and goes on sending has not: it was somebody else's, who guessed.
 */
GLOBAL_FN bool nat_note_flags(const struct transport *t, struct nat_entry *entry)
{
	if (!t || !entry)
		return false;
	if ((t->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && nat_syn_reopens(&t->tuple, entry)) {
		nat_delete(&t->tuple, entry);
		return false;
	}
	if (t->flags & TCP_SYN)
		entry->flags &= ~(NAT_FIN | NAT_TIME_WAIT);
	if (t->flags & TCP_RST) {
		entry->flags |= NAT_RESET;
		entry->seen =
			ktime_coarse(); /* exactly: what the other end sends after it shows that it was not believed */
	} else {
		entry->flags &= ~NAT_RESET;
	}
	if (t->flags & TCP_FIN)
		nat_note_fin(t, entry);
	return true;
}

/*
 * The established connection of a packet, NULL if there is none. Notes the packet. The pointer is into `nat`:
 * nobody but the agent removes it, and memory outlives the program's run.
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
