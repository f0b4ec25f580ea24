/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections that are translated packet by packet: where the two directions of each are kept, how one begins, becomes
 * established and ends. Nothing here knows of packets, so tc and XDP share it. What a connection is to be
 * translated to is the caller's to say.
 *
 * A packet asks connection_find first, then connection_find_opening, and if that finds nothing, whoever wants a
 * connection fills a struct beginning and calls connection_claim (claim.h).
 */
#pragma once

#include "../config.h"
#include "address.h"
#include "transport.h"
#include "verdict.h"

#define CONNECTION_SECOND 1000000000ULL

/*
 * One more enum connection_flag: packets of both directions may arrive at an uplink, so XDP forwards them. It is no value of that enum, as
 * versions that do not know it can use the entries all the same.
 */
#define CONNECTION_WIRE (1 << 7)

/* CLOCK_MONOTONIC in ns, to the kernel's tick. */
static __always_inline __u64 connection_now(void)
{
	return bpf_ktime_get_coarse_ns();
}

/*
 * A flow without TCP's flags is a stream once it has packets of both directions so long after its first one, in the units of
 * connection.born: the 2 s of Linux (net/netfilter/nf_conntrack_proto_udp.c).
 */
#define CONNECTION_STREAM_AGE 8

/* What connection.born counts. */
static __always_inline __u16 connection_clock(__u64 now)
{
	return now >> 28;
}

/* Notes that a direction has a packet now. `born` wraps around in 4.9 hours; by then the connection is a stream or over. */
static __always_inline void connection_note_packet(struct connection *c, __u8 protocol, __u64 now)
{
	c->seen = now;
	if (!transport_has_flags(protocol) && (__u16)(connection_clock(now) - c->born) >= CONNECTION_STREAM_AGE)
		c->flags |= CONNECTION_STREAM;
}

/* The key of the other direction: its packets come from where this one's go to after translation. */
static __always_inline void connection_turn(struct tuple *key, const struct connection *to, __u8 protocol)
{
	key->source = to->destination;
	key->destination = to->source;
	key->source_port = to->destination_port;
	key->destination_port = to->source_port;
	key->protocol = protocol;
	key->padding[0] = key->padding[1] = key->padding[2] = 0;
}

/* Whether packets that get *to are answered by packets that get `t`'s addresses and ports back: two halves of one connection. */
static __always_inline bool connection_answers(const struct connection *to, const struct tuple *t)
{
	return to->source_port == t->destination_port && to->destination_port == t->source_port &&
	       address_equals(&to->source, &t->destination) && address_equals(&to->destination, &t->source);
}

/* Removes both directions, wherever they are. */
SEPARATE int connection_forget(const struct tuple *t, const struct connection *to)
{
	struct tuple key;

	if (!t || !to)
		return 0;
	connection_turn(&key, to, t->protocol);
	bpf_map_delete_elem(&connections, &key);
	bpf_map_delete_elem(&openings, &key);
	key = *t;
	bpf_map_delete_elem(&connections, &key);
	bpf_map_delete_elem(&openings, &key);
	return 0;
}

/* By either of these an end says that it has ended the connection. */
#define CONNECTION_ENDED (CONNECTION_FIN | CONNECTION_RESET)

/* RST of one end is not enough: whoever guesses addresses and ports can send it (RFC 5961, 1.2), and only who gets it can tell. */
static __always_inline bool connection_ended_by_both(const struct connection *to, const struct connection *back)
{
	return to->flags & CONNECTION_ENDED && back->flags & CONNECTION_ENDED;
}

/*
 * TCP and SCTP: whether another connection may have what this one had: both its ends have ended it, or one has reset it and neither has
 * sent anything for as long as what both have ended is kept.
 */
SEPARATE bool connection_over(const struct tuple *t, const struct connection *to)
{
	__u64 since = connection_now() - TIMEOUT_TCP_CLOSED * CONNECTION_SECOND;
	const struct connection *back;
	struct tuple other;

	if (!t || !to || !transport_has_flags(t->protocol))
		return false;
	connection_turn(&other, to, t->protocol);
	back = bpf_map_lookup_elem(&connections, &other);
	if (!back)
		return to->flags & CONNECTION_ENDED;
	if (connection_ended_by_both(to, back))
		return true;
	return (to->flags | back->flags) & CONNECTION_RESET && to->seen < since && back->seen < since;
}

/* How long (s) a connection lasts without a packet, by one direction and the other one, which may be NULL. Go: entry.lasts. */
static __always_inline __u32 connection_timeout(__u8 protocol, const struct connection *c,
						const struct connection *back, bool pending)
{
	__u8 theirs = back ? back->flags : 0, both = c->flags | theirs;

	if (!transport_has_flags(protocol)) {
		if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6)
			return TIMEOUT_NAT_ECHO;
		return c->flags & (c->flags & CONNECTION_DIRECT ? ~0 : theirs) & CONNECTION_STREAM
			       ? TIMEOUT_NAT_STREAM
			       : TIMEOUT_NAT_DATAGRAMS;
	}
	if ((c->flags & CONNECTION_ENDED && theirs & CONNECTION_ENDED) || (pending && both & CONNECTION_RESET))
		return both & CONNECTION_RESTS ? TIMEOUT_TCP_RESTING : TIMEOUT_TCP_CLOSED;
	if (both & CONNECTION_FIN || (c->flags & CONNECTION_RESET && (!back || back->seen <= c->seen)) ||
	    (theirs & CONNECTION_RESET && c->seen <= back->seen))
		return TIMEOUT_TCP_CLOSING;
	if (!pending || (c->flags & CONNECTION_DIRECT && c->packets > 1))
		return TIMEOUT_TCP;
	return (c->flags & CONNECTION_OPENER ? back && back->packets : c->packets) ? TIMEOUT_NAT_SYN_REPLY
										   : TIMEOUT_NAT_SYN;
}

/*
 * Whether a connection, one of whose directions is *t in `openings` (pending) or `connections`, has expired. The agent removes such ones
 * now and then (Connections.Expire); they are evicted at once where a new one needs their key, port or slot.
 */
SEPARATE bool connection_expired(const struct tuple *t, const struct connection *c, bool pending)
{
	const struct connection *back = 0;
	__u64 now = connection_now();
	struct tuple other;
	__s64 quiet, theirs;

	if (!t || !c)
		return false;
	quiet = now - c->seen;
	if (quiet < (__s64)(TIMEOUT_TCP_CLOSED * CONNECTION_SECOND))
		return false;
	if (!(c->flags & CONNECTION_DIRECT)) {
		connection_turn(&other, c, t->protocol);
		back = bpf_map_lookup_elem(&connections, &other);
		if (!back)
			back = bpf_map_lookup_elem(&openings, &other);
		if (back && !connection_answers(back, t))
			back = 0;
		if (!back && !pending)
			return true; /* half of a connection whose other half was evicted */
	}
	theirs = back ? now - back->seen : quiet;
	return (theirs < quiet ? theirs : quiet) >=
	       (__s64)(connection_timeout(t->protocol, c, back, pending) * CONNECTION_SECOND);
}

/* How long a SYN waits for its answer: less than until it is sent again, more than between two challenges of Linux (500 ms). */
#define CONNECTION_CHALLENGE (CONNECTION_SECOND / 4 * 3)

/* Of the direction that should answer, in the place of `seen`: so many SYN less one were not answered. */
#define CONNECTION_SYN_UNANSWERED 1

/*
 * Whether a SYN begins a new connection where there is one already: if both ends have ended that, if the other one has reset it, or if it
 * has not answered the two before, which are passed on to the old one's end. Who has that connection still answers them, at least the
 * second (RFC 5961, 4), and who has forgotten it accepts or refuses.
 */
SEPARATE bool connection_renewed(const struct tuple *t, struct connection *to)
{
	__u64 now = connection_now();
	struct connection *back;
	struct tuple other;

	if (!t || !to)
		return false;
	connection_turn(&other, to, t->protocol);
	back = bpf_map_lookup_elem(&connections, &other);
	if (!back)
		return to->flags & CONNECTION_ENDED;
	if (back->flags & CONNECTION_RESET || connection_ended_by_both(to, back))
		return true;
	if (back->seen > CONNECTION_SYN_UNANSWERED) {
		back->seen = 0;
	} else if (now - to->seen < CONNECTION_CHALLENGE) {
		return false;
	} else if (back->seen++ == CONNECTION_SYN_UNANSWERED) {
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
SEPARATE int connection_note_end(const struct transport *t, struct connection *c)
{
	struct connection *back;
	struct tuple other;

	if (!t || !c)
		return 0;
	if (!(c->flags & (CONNECTION_OPENER | CONNECTION_FIN)) &&
	    !address_equals(&c->destination, &t->tuple.destination)) {
		connection_turn(&other, c, t->tuple.protocol);
		back = bpf_map_lookup_elem(&connections, &other);
		if (back && !(back->flags & CONNECTION_FIN)) {
			back->flags |= CONNECTION_RESTS;
			c->flags |= CONNECTION_RESTS;
		}
	}
	c->flags |= CONNECTION_FIN;
	return 0;
}

/*
 * Notes what TCP's flags say, or what is like them. False if the packet begins a new connection where an old one has ended: that is
 * forgotten then. Who has sent RST and goes on sending has not: it was somebody else's, who guessed.
 */
SEPARATE bool connection_note_flags(const struct transport *t, struct connection *c)
{
	if (!t || !c)
		return false;
	if ((t->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && connection_renewed(&t->tuple, c)) {
		connection_forget(&t->tuple, c);
		return false;
	}
	if (t->flags & TCP_SYN)
		c->flags &= ~(CONNECTION_FIN | CONNECTION_RESTS);
	if (t->flags & TCP_RST) {
		c->flags |= CONNECTION_RESET;
		c->seen =
			connection_now(); /* exactly: what the other end sends after it shows that it was not believed */
	} else {
		c->flags &= ~CONNECTION_RESET;
	}
	if (t->flags & TCP_FIN)
		connection_note_end(t, c);
	return true;
}

/*
 * The established connection of a packet, NULL if there is none. Notes the packet. The pointer is into `connections`:
 * nobody but the agent removes it, and memory outlives the program's run.
 */
static __always_inline struct connection *connection_find(const struct transport *t, __u64 now)
{
	struct connection *c = bpf_map_lookup_elem(&connections, &t->tuple);

	if (!c)
		return 0;
	if (unlikely(t->flags & (TCP_SYN | TCP_FIN | TCP_RST) || c->flags & CONNECTION_RESET) &&
	    !connection_note_flags(t, c))
		return 0;
	if (unlikely(now - c->seen >= CONNECTION_SECOND))
		connection_note_packet(c, t->tuple.protocol, now);
	return c;
}

/* What the other direction of a connection that begins gets: the way back from *to to what `t` had. */
static __always_inline void connection_turn_value(struct connection *back, const struct tuple *t,
						  const struct connection *to)
{
	back->source = t->destination;
	back->destination = t->source;
	back->source_port = t->destination_port;
	back->destination_port = t->source_port;
	back->service = to->service;
	back->seen = to->seen;
	back->flags = to->flags & (CONNECTION_PLAIN | CONNECTION_WIRE);
	back->packets = 0;
	back->born = to->born;
	back->owner = to->owner;
}

/* A connection that is to begin: filled by the caller but for `other` and `back`. Too large for the stack of a long call chain. */
struct beginning {
	struct tuple key;	/* of the first packet */
	struct connection to;	/* what it gets; connection_claim sets seen and packets */
	struct tuple other;	/* set by connection_claim: the key of the answers, */
	struct connection back; /* and what they get */
};

enum claim {
	CLAIM_BEGUN = 0,
	CLAIM_TAKEN,   /* another connection has the answers' key: another port is needed, or DROP_NO_NAT_PORT */
	CLAIM_NO_ROOM, /* DROP_CONNECTIONS_FULL */
};
