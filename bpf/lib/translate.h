/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Translation of packets: those of connections that are known get the addresses and ports that were chosen for them and
 * go their way; opening.h decides about the others. A stage that returns NEXT has not changed the packet, which then
 * goes on as if nobody translated.
 */
#pragma once

#include "opening.h"
#include "rewrite.h"
#include "session_translated.h"
#include "way.h"

/* Whether routers may cut the packet into pieces: IPv4 without DF (RFC 791, 3.1). */
static __always_inline bool packet_may_be_cut(const struct packet *p)
{
	return p->protocol == bpf_htons(ETH_P_IP) && !(p->ip4->frag_off & bpf_htons(0x4000));
}

/* Whether what is around a packet is cut where the whole does not fit: VXLAN over IPv4. Over IPv6 the kernel cuts nothing of it. */
static __always_inline bool translate_cut_around(const struct route *way)
{
	return way->kind == ROUTE_TUNNEL && address_is_ipv4(&way->next_hop);
}

/* Does to a packet of connection *c what is done where the stack goes on with it. */
STAGE translate_here(struct packet *p, const struct translation *x, const struct connection *c)
{
	return rewrite(p, &x->transport, c) ? PASS : drop(p, rewrite_problem(&x->transport));
}

/* Whether the packet gets another source, from which the stack would take no packet that comes from outside of it. */
static __always_inline bool translate_moves(const struct tuple *t, const struct connection *c)
{
	return !address_equals(&t->source, &c->source) || t->source_port != c->source_port;
}

/*
 * Translates a packet of connection *c and sends it straight, or leaves it to the stack: translated if the stack takes
 * it that way, else as it is, and to_pod translates it once it is through. NEXT only if its sender is to be told that it goes
 * no further: x->mtu says what would fit its way, or REFUSAL_EXPIRED.
 */
static __noinline enum verdict translate_straight(struct packet *p, struct translation *x, const struct connection *c,
						  __u32 how, __u64 now)
{
	bool moved = translate_moves(&x->transport.tuple, c), fresh;
	struct decision *d;
	enum verdict v;

	if (!moved && how & TRANSLATE_STACK) {
		v = session_pass_translated(p, x, c, 0, how >> TRANSLATE_POLICED);
		if (v != NEXT)
			return v;
		return c->flags & CONNECTION_PLAIN ? PASS : translate_here(p, x, c);
	}
	d = way_out(p, x, &c->source, &c->destination, now, &fresh);
	if (!d)
		return PASS; /* cannot be: every index has its element */
	v = session_pass_translated(p, x, c, d, how >> TRANSLATE_POLICED | d->policed);
	if (v != NEXT)
		return v;
	if (config_dsr && c->flags & CONNECTION_DIRECT && d->route.kind != ROUTE_REMOTE)
		return drop(p, DROP_NO_ROUTE); /* the way there has changed: nobody would know what to do with it */
	if (unlikely(d->route.kind == ROUTE_CLUSTER || d->route.kind == ROUTE_UNKNOWN)) {
		if (!moved)
			return c->flags & CONNECTION_PLAIN ? PASS : translate_here(p, x, c);
		return d->route.kind == ROUTE_CLUSTER ? PASS : drop(p, DROP_NO_ROUTE);
	}
	if (unlikely(p->hops <= 1)) {
		/* The stack answers what it would have forwarded; it would take for its own what is for an address of the node. */
		if (p->program == PROGRAM_FROM_POD && !c->service)
			return PASS;
		x->mtu = REFUSAL_EXPIRED;
		return NEXT;
	}
	if (d->route.kind != ROUTE_LOCAL && unlikely(!route_fits(p, &d->route)) &&
	    !(translate_cut_around(&d->route) && packet_may_be_cut(p))) {
		x->mtu = d->route.mtu;
		return NEXT;
	}
	if (likely(!(c->flags & (CONNECTION_PLAIN | CONNECTION_DIRECT))) && !rewrite(p, &x->transport, c))
		return drop(p, rewrite_problem(&x->transport));
	return way_send(p, d, fresh);
}

/*
 * Whether packets of connection *c go on here as they are. At to_wire, those that from_wire forwards to their backend's
 * node (DSR), which are of the opener's direction: the stack only answers. At from_pod, those that the stack is to have,
 * behind which to_wire masquerades.
 */
static __always_inline bool translate_elsewhere(const struct connection *c, enum place place, __u32 how)
{
	bool opener = c->flags & CONNECTION_OPENER;

	if (place == PLACE_TO_WIRE)
		return c->flags & (CONNECTION_PLAIN | CONNECTION_DIRECT) || (how & TRANSLATE_ANSWERS && opener);
	return place == PLACE_POD && how & TRANSLATE_STACK && opener && !c->service;
}

/* An ICMP error about a packet of connection *c, and the packet that it quotes. */
static __noinline enum verdict translate_error_of(struct packet *p, struct translation *x, const struct connection *c,
						  enum place place, __u32 how)
{
	const struct address *source = address_equals(&p->source, &x->error.tuple.source) ? &c->source : &p->source;
	bool moved = source != &p->source && !address_equals(source, &p->source), fresh;
	struct decision *d;
	enum verdict v;

	x->found = *c; /* the connection may be gone before the packet is */
	v = session_pass_error(p, x, &x->found, how >> TRANSLATE_POLICED);
	if (v != NEXT)
		return v;
	if (place == PLACE_TO_POD || place == PLACE_TO_WIRE || (!moved && how & TRANSLATE_STACK)) {
		v = icmp_error_translate(p, &x->error, &x->found);
		return v == NEXT ? PASS : v;
	}
	d = way_out(p, x, source, &x->found.destination, connection_now(), &fresh);
	if (!d)
		return PASS; /* cannot be: every index has its element */
	if (moved && d->route.kind == ROUTE_CLUSTER)
		return PASS;
	if (moved && d->route.kind == ROUTE_UNKNOWN)
		return drop(p, DROP_NO_ROUTE);
	if (p->hops <= 1)
		return PASS;
	v = session_pass_error(p, x, &x->found, d->policed);
	if (v != NEXT)
		return v;
	v = x->found.flags & CONNECTION_DIRECT ? NEXT : icmp_error_translate(p, &x->error, &x->found);
	return v == NEXT ? way_send_rare(p, d, fresh) : v;
}

/* Whether a pod, which reports about a packet, can have got it: it was sent to an address of its own. */
static __always_inline bool translate_received(const struct packet *p, const struct address *receiver)
{
	const struct endpoint *e = endpoint_of(receiver);

	return e && e->ifindex == p->skb->ifindex;
}

/* Whether who reports about a packet, which is no pod here, can have seen it. */
static __always_inline bool translate_may_tell(const struct packet *p, const struct translation *x, enum place place,
					       __u32 how)
{
	const struct tuple *answers = &x->error.tuple;

	switch (place) {
	case PLACE_WIRE:
		return origin_may_tell(&p->source, answers, how & TRANSLATE_TUNNEL);
	case PLACE_TO_POD:
		return origin_may_be_device(&answers->source, &answers->destination, p->skb->ingress_ifindex);
	default:
		return true;
	}
}

/* What has no ports that are its own: NEXT for what is none of translation's business. */
STAGE translate_error(struct packet *p, struct translation *x, enum place place, __u32 how)
{
	const struct connection *c;
	enum verdict v;

	if (icmp_error_read(p, &x->error) && address_equals(&p->destination, &x->error.tuple.destination)) {
		c = bpf_map_lookup_elem(&connections, &x->error.tuple);
		if (!c)
			c = bpf_map_lookup_elem(&openings, &x->error.tuple);
		if (c && translate_elsewhere(c, place, how)) {
			v = session_pass_error(p, x, c, how >> TRANSLATE_POLICED);
			return v == NEXT ? PASS : v;
		}
		if (c && place == PLACE_POD && !translate_received(p, &x->error.tuple.source))
			return drop(p, DROP_SPOOFED_SOURCE);
		if (c && !translate_may_tell(p, x, place, how))
			return drop(p, DROP_FORGED_ERROR);
		if (c)
			return c->flags & CONNECTION_PLAIN ? NEXT : translate_error_of(p, x, c, place, how);
	}
	return opening_needs_source(place, how) ? drop(p, DROP_UNTRANSLATABLE) : NEXT;
}

/*
 * Packets that cannot be looked up by their ports at once. With NEXT and x->transport.kind as it was, or TRANSPORT_PIECE with
 * the ports of the first piece, they can be now.
 */
static __noinline enum verdict translate_unusual(struct packet *p, struct translation *x, enum place place, __u32 how)
{
	struct transport *t = &x->transport;

	switch (t->kind) {
	case TRANSPORT_PORTS:
		return fragment_remember(p, t) ? NEXT : drop(p, DROP_BAD_FRAGMENT);
	case TRANSPORT_PIECE:
		if (fragment_recall(p, t))
			return NEXT;
		t->kind = TRANSPORT_OTHER;
		return opening_needs_source(place, how) ? drop(p, DROP_UNKNOWN_FRAGMENT) : NEXT;
	case TRANSPORT_ERROR:
		return translate_error(p, x, place, how);
	case TRANSPORT_BROKEN:
		return drop(p, DROP_BAD_FRAGMENT);
	default:
		t->kind = TRANSPORT_OTHER;
		return opening_needs_source(place, how) ? drop(p, DROP_UNTRANSLATABLE) : NEXT;
	}
}

/*
 * A packet that does not fit its new way, or has no hop left for it. Who sent it is told. One that may be cut is the stack's to cut
 * if its source is one that the stack takes packets from; else its sender, once told, sends smaller ones or cuts them.
 */
static __noinline enum verdict translate_no_further(struct packet *p, struct translation *x, const struct connection *c)
{
	if (x->mtu != REFUSAL_EXPIRED && packet_may_be_cut(p) && !translate_moves(&x->transport.tuple, c))
		return translate_here(p, x, c);
	return refuse_further(p, &x->transport, x->mtu);
}

/* A packet of no established connection. With NEXT, x->known says whether it is of one that is being opened, x->found. */
static __noinline enum verdict translate_unknown(struct packet *p, struct translation *x, enum place place, __u32 how,
						 __u64 now)
{
	int reason = opening_decide(p->skb, place, how, now);

	if (likely(reason == OPENING_NEXT))
		return NEXT;
	return reason == OPENING_REFUSE ? refuse(p, &x->transport) : drop(p, reason);
}

/* Translates a packet of a known connection. */
STAGE translate_known(struct packet *p, struct translation *x, const struct connection *c, enum place place, __u32 how,
		      __u64 now)
{
	enum verdict v;

	if (translate_elsewhere(c, place, how)) {
		v = session_pass_translated(p, x, c, 0, how >> TRANSLATE_POLICED);
		return v == NEXT ? PASS : v;
	}
	switch (place) {
	case PLACE_TO_POD:
		if (c->flags & (CONNECTION_OPENER | CONNECTION_PLAIN))
			return NEXT;
		v = session_pass_answer(p, x, c, how >> TRANSLATE_POLICED);
		return v == NEXT ? translate_here(p, x, c) : v;
	case PLACE_TO_WIRE:
		return translate_here(p, x, c);
	case PLACE_WIRE:
		if (c->flags & CONNECTION_PLAIN)
			return NEXT;
		break;
	case PLACE_POD:
		break;
	}
	v = translate_straight(p, x, c, how, now);
	return likely(v != NEXT) ? v : translate_no_further(p, x, c);
}

/* The whole of it, for a packet that may be of a translated connection: `how` is an enum translate_flag, not 0. */
STAGE translate(struct packet *p, enum place place, __u32 how)
{
	struct translation *x = translation_place();
	const struct connection *c;
	enum verdict v;
	__u64 now;

	if (!x)
		return NEXT; /* cannot be: the index has its element */
	transport_parse(p, &x->transport);
	if (unlikely(x->transport.kind != TRANSPORT_PORTS || x->transport.in_pieces)) {
		v = translate_unusual(p, x, place, how);
		if (v != NEXT || x->transport.kind == TRANSPORT_OTHER || x->transport.kind == TRANSPORT_ERROR)
			return v;
	}
	if (!config_services && how & TRANSLATE_NODE && !connection_port_is_ours(x->transport.tuple.destination_port))
		return NEXT; /* the node's own: without Services only masquerading is answered, at ports that it gave */
	if (how & TRANSLATE_FRESH && !opening_has_service(x))
		return NEXT;
	now = connection_now();
	c = connection_find(&x->transport, now);
	if (unlikely(!c)) {
		v = translate_unknown(p, x, place, how, now);
		if (v != NEXT || !x->known)
			return v;
		c = &x->found;
	}
	return translate_known(p, x, c, place, how, now);
}
