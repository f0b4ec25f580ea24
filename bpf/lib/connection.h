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

/* Moves a connection, whose one direction is `t`, from `openings` to `connections`. False if there is no room. */
SEPARATE bool connection_promote(const struct tuple *t)
{
	const struct connection *c, *back;
	struct tuple key, other;

	if (!t)
		return false;
	key = *t;
	c = bpf_map_lookup_elem(&openings, &key);
	if (!c)
		return true; /* another CPU is at it, or the table has pushed it out: the next packet */
	connection_turn(&other, c, key.protocol);
	back = bpf_map_lookup_elem(&openings, &other);
	if (!back || !connection_answers(back, &key))
		return true; /* the same */
	if (bpf_map_update_elem(&connections, &other, back, BPF_ANY))
		return false;
	if (bpf_map_update_elem(&connections, &key, c, BPF_ANY)) {
		bpf_map_delete_elem(&connections, &other);
		return false;
	}
	bpf_map_delete_elem(&openings, &other);
	bpf_map_delete_elem(&openings, &key);
	return true;
}

/* How looking for a connection that may still be opening ended. */
enum finding {
	FOUND_NOTHING = 0,
	FOUND_CONNECTION,
	FOUND_NO_ROOM, /* would be established, but `connections` is full: DROP_CONNECTIONS_FULL */
};

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
	back->flags = to->flags & CONNECTION_PLAIN;
	back->packets = 0;
	back->born = to->born;
	back->padding[0] = back->padding[1] = 0;
}

/*
 * Whether this packet makes of an opening a connection that counts as established; *back is the other direction. TCP: one
 * behind the handshake's first two, so a flood of SYN fills `openings` only, even where a server answers it. Nothing does
 * that nobody has answered, or only by a reset: whoever sends in others' names would fill `connections`. So a connection
 * whose answers do not come by here (DSR) stays where it is.
 */
static __always_inline bool connection_established_by(const struct transport *t, const struct connection *c,
						      const struct connection *back)
{
	if (c->flags & CONNECTION_DIRECT || t->flags & (TCP_SYN | TCP_RST))
		return false;
	if (!(c->flags & CONNECTION_OPENER))
		return true;
	return back && back->packets && !(back->flags & CONNECTION_RESET);
}

/*
 * The connection of a packet among those that are not established yet, copied to *found; notes the packet. `openings`
 * may push out one half of a connection: that of the opener brings the other one back.
 */
SEPARATE enum finding connection_find_opening(const struct transport *t, __u64 now, struct connection *found)
{
	const struct connection *other = 0;
	struct connection *c, back;
	struct tuple key;

	if (!t || !found)
		return FOUND_NOTHING;
	key = t->tuple;
	c = bpf_map_lookup_elem(&openings, &key);
	if (!c)
		return FOUND_NOTHING;
	if (transport_has_flags(t->tuple.protocol) && !connection_note_flags(t, c))
		return FOUND_NOTHING;
	connection_note_packet(c, t->tuple.protocol, now);
	if (c->packets < 255)
		c->packets++;
	*found = *c;
	connection_turn(&key, found, t->tuple.protocol);
	if (!(found->flags & CONNECTION_DIRECT))
		other = bpf_map_lookup_elem(&openings, &key);
	if (other && !connection_answers(other, &t->tuple))
		return FOUND_NOTHING; /* of another connection, which got the answers' key after that was pushed out */
	if (connection_established_by(t, found, other))
		return connection_promote(&t->tuple) ? FOUND_CONNECTION : FOUND_NO_ROOM;
	if (!other && (found->flags & (CONNECTION_OPENER | CONNECTION_DIRECT)) == CONNECTION_OPENER) {
		connection_turn_value(&back, &t->tuple, found);
		if (bpf_map_update_elem(&openings, &key, &back, BPF_NOEXIST))
			return FOUND_NOTHING; /* somebody else's meanwhile: begin anew */
	}
	return FOUND_CONNECTION;
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
