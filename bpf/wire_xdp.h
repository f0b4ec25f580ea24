/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XDP of an uplink: a packet arrives from outside the node, before the kernel makes an skb of it. What only passes
 * through on its way to a backend of another node, and what comes back from there, turns round here. All else goes
 * on to from_wire, which does the same with the same tables.
 */
#pragma once

#include "config.h"
#include "lib/finish.h"
#include "lib/opening.h"
#include "lib/rewrite_xdp.h"

/* By the kernel's routes and neighbours: ROUTE_REMOTE, or ROUTE_UNKNOWN where these do not lead out to a known neighbour. */
static __noinline void wire_xdp_ask_kernel(struct xdp_md *ctx, struct translation *x, struct route *way,
					   const struct connection *c)
{
	struct bpf_fib_lookup *fib = &x->fib;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ctx->ingress_ifindex;
	if (address_is_ipv4(&c->destination)) {
		fib->family = FAMILY_IPV4;
		fib->ipv4_src = c->source.word[3];
		fib->ipv4_dst = c->destination.word[3];
	} else {
		fib->family = FAMILY_IPV6;
		__builtin_memcpy(fib->ipv6_src, &c->source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, &c->destination, sizeof(fib->ipv6_dst));
	}
	way->kind = ROUTE_UNKNOWN;
	if (bpf_fib_lookup(ctx, fib, sizeof(*fib), 0) != FIB_SUCCESS)
		return;
	way->kind = ROUTE_REMOTE;
	way->mtu = fib->mtu_result;
	way->ifindex = fib->ifindex;
	way->resolved = true;
	__builtin_memcpy(way->next_hop_mac, fib->dmac, ETH_ALEN);
	__builtin_memcpy(way->uplink_mac, fib->smac, ETH_ALEN);
}

/* Decides about packets that get what *c says. */
static __noinline void wire_xdp_decide(struct xdp_md *ctx, struct translation *x, struct decision *d,
				       const struct connection *c, __u64 now)
{
	__u32 state = decision_generation();
	const struct route *r = route_of(&c->destination);

	d->expires = 0;
	d->translated = 0;
	if (r && r->kind != ROUTE_CLUSTER) {
		d->route = *r;
	} else {
		wire_xdp_ask_kernel(ctx, x, &d->route, c);
		d->expires = (now >> 30) + 1;
	}
	decision_keep(d, &c->source, &c->destination, ctx->ingress_ifindex | SCOPE_XDP, state);
}

/*
 * The way of packets that get what *c says, NULL where tc has to see to this one: that happens about once in a
 * second to those that follow the kernel's routes, so that the kernel learns that the neighbour is in use, as in way_out.
 */
static __always_inline const struct decision *wire_xdp_way(struct xdp_md *ctx, struct translation *x,
							   const struct connection *c, __u64 now)
{
	struct decision *d = decision_place_xdp(&c->source, &c->destination);
	bool same;

	if (!d)
		return 0; /* cannot be: every index has its element */
	same = decision_holds(d, &c->source, &c->destination, ctx->ingress_ifindex | SCOPE_XDP, decision_generation());
	if (likely(same && (!d->expires || (__u32)(now >> 30) < d->expires)))
		return d;
	wire_xdp_decide(ctx, x, d, c, now);
	return d->expires && way_renews(same) ? 0 : d;
}

/* Whether a packet may leave that way at once. Only by a wire, to a neighbour that is known, and as one piece. */
static __always_inline bool wire_xdp_leads_out(struct xdp_md *ctx, const struct frame *f, const struct decision *d)
{
	const struct route *way = &d->route;

	if (way->kind != ROUTE_REMOTE || !way->resolved || f->length > way->mtu || f->hops <= 1)
		return false;
	if (!d->expires && !route_neighbours_followed())
		return false;
	return way->ifindex == ctx->ingress_ifindex || bpf_map_lookup_elem(&xdp_uplinks, &way->ifindex);
}

/*
 * Translates the packet, unless its backend's node is to have it as it came, and sends it. Of other connections than those whose packets
 * all come by wires, a packet may be forged: from_wire asks.
 */
static __always_inline int wire_xdp_send(struct xdp_md *ctx, struct frame *f, struct translation *x,
					 const struct connection *c, __u64 now)
{
	const struct decision *d;

	if (!(c->flags & CONNECTION_WIRE))
		return XDP_PASS;
	d = wire_xdp_way(ctx, x, c, now);
	if (!d || !wire_xdp_leads_out(ctx, f, d))
		return XDP_PASS;
	if (!(c->flags & CONNECTION_DIRECT))
		frame_translate(f, c, x->transport.tuple.protocol);
	frame_take_hop(f);
	__builtin_memcpy(f->eth->h_dest, d->route.next_hop_mac, ETH_ALEN);
	__builtin_memcpy(f->eth->h_source, d->route.uplink_mac, ETH_ALEN);
	if (likely(d->route.ifindex == ctx->ingress_ifindex))
		return XDP_TX;
	return bpf_redirect_map(&xdp_uplinks, d->route.ifindex, XDP_DROP);
}

/* Leaves a connection that has been answered to tc, which will count it again. */
static __always_inline enum verdict wire_xdp_leave(const struct choice *choice, enum answer answer)
{
	struct service_count *count = service_count_of(choice->service);

	if (count && answer == ANSWER_BACKEND)
		count->connections--;
	else if (count)
		count->refused--;
	return PASS;
}

SEPARATE bool wire_xdp_port_in_use(struct xdp_md *ctx, const struct tuple *answers)
{
	return answers && nat_socket_has(ctx, answers);
}

/* Attempts to get a port, one after the other. */
struct wire_xdp_search {
	struct xdp_md *ctx;
	enum claim claim;
};

static long wire_xdp_search_step(__u32 attempt, struct wire_xdp_search *s)
{
	struct translation *x = translation_place();
	struct beginning *b;

	if (!x)
		return 1;
	b = &x->beginning;
	if (attempt)
		b->to.source_port = connection_port(&b->key, b->to.owner, attempt - 1);
	connection_turn(&b->other, &b->to, b->key.protocol);
	if (!connection_port_is_ours(b->to.source_port) || wire_xdp_port_in_use(s->ctx, &b->other))
		return 0;
	s->claim = connection_claim(attempt ? connection_attempt_takes(attempt - 1) : GIVE_WAY_NONE);
	return s->claim != CLAIM_TAKEN;
}

/* Begins x->beginning, from an address of this node: with the client's port if that will do, else with another one. */
static __always_inline enum drop_reason wire_xdp_claim(struct xdp_md *ctx, struct translation *x)
{
	struct wire_xdp_search s = {.ctx = ctx, .claim = CLAIM_TAKEN};
	int slot = nat_slot_take(&x->beginning.key, x->beginning.to.owner, true);

	if (slot == NAT_SLOT_NONE)
		return DROP_CONNECTIONS_FULL;
	bpf_loop(1 + CONNECTION_ATTEMPTS, wire_xdp_search_step, &s, 0);
	nat_slot_release(slot, s.claim == CLAIM_BEGUN, true);
	if (s.claim == CLAIM_TAKEN)
		return DROP_NO_NAT_PORT;
	if (s.claim == CLAIM_NO_ROOM)
		return DROP_CONNECTIONS_FULL;
	x->found = x->beginning.to;
	return DROP_NONE;
}

/* Begins x->beginning as a connection whose packets go on as they are. */
static __always_inline enum drop_reason wire_xdp_begin_direct(struct translation *x)
{
	int slot = nat_slot_take(&x->beginning.key, x->beginning.to.owner, true);
	bool begun = slot != NAT_SLOT_NONE && connection_claim(GIVE_WAY_NONE) == CLAIM_BEGUN;

	if (slot != NAT_SLOT_NONE)
		nat_slot_release(slot, begun, true);
	if (!begun)
		return DROP_CONNECTIONS_FULL;
	x->found = x->beginning.to;
	return DROP_NONE;
}

/*
 * The first packet of a connection to a Service. With NEXT, x->found is that of one which is opened now. What does
 * not go out by a wire again is tc's to begin, and so is refusing.
 */
STAGE wire_xdp_open(struct xdp_md *ctx, struct translation *x, enum drop_reason *reason)
{
	struct connection *to = &x->beginning.to;
	const struct route *r;

	if (x->transport.tuple.protocol == PROTOCOL_TCP && (x->transport.flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return PASS;
	if (!origin_may_be_wire(&x->transport.tuple.source, &x->transport.tuple.destination))
		return PASS; /* from_wire drops it */
	opening_prepare(x, nat_owner_external(&x->transport.tuple.source));
	switch (service_choose(&x->transport.tuple, SIDE_OUTSIDE, 0, &x->choice)) {
	case ANSWER_BACKEND:
		break;
	case ANSWER_DROP:
		*reason = DROP_NO_LOCAL_BACKEND;
		return DROP;
	case ANSWER_FORBID:
		*reason = DROP_SOURCE_NOT_ALLOWED;
		return DROP;
	case ANSWER_TUNNEL:
		*reason = DROP_TUNNEL_PORT;
		return DROP;
	case ANSWER_REFUSE:
		return wire_xdp_leave(&x->choice, ANSWER_REFUSE);
	default:
		return PASS;
	}
	r = route_of(&x->choice.backend.address);
	if (!r || r->kind != ROUTE_REMOTE)
		return wire_xdp_leave(&x->choice, ANSWER_BACKEND);
	to->destination = x->choice.backend.address;
	to->destination_port = x->choice.backend.port;
	to->service = x->choice.service;
	to->flags |= CONNECTION_WIRE;
	if (direct_may(x, r->kind)) {
		to->flags |= CONNECTION_DIRECT;
		*reason = wire_xdp_begin_direct(x);
		return *reason ? DROP : NEXT;
	}
	if (opening_take_address(x, r->ifindex, DROP_NO_ROUTE) != SOURCE_NODE)
		return wire_xdp_leave(&x->choice, ANSWER_BACKEND);
	*reason = wire_xdp_claim(ctx, x);
	return *reason ? DROP : NEXT;
}

/* What a packet may be, by where it goes. */
enum wire_xdp_concern {
	WIRE_XDP_NONE,	  /* nothing that is forwarded here */
	WIRE_XDP_ANSWER,  /* to a port that translation may have given */
	WIRE_XDP_SERVICE, /* to a Service */
};

/* Nearly every packet is of no concern: two lookups tell. */
static __always_inline enum wire_xdp_concern wire_xdp_concerns(struct translation *x, const struct uplink *u)
{
	const struct tuple *t = &x->transport.tuple;
	const struct address *own = address_is_ipv4(&t->destination) ? &u->ipv4 : &u->ipv6;

	if (opening_has_service(x))
		return WIRE_XDP_SERVICE;
	return connection_port_is_ours(t->destination_port) && address_equals(&t->destination, own) ? WIRE_XDP_ANSWER
												    : WIRE_XDP_NONE;
}

/* A packet of no established connection. With NEXT, its connection is x->found. */
static __noinline enum verdict wire_xdp_new(struct xdp_md *ctx, struct translation *x, enum wire_xdp_concern concern,
					    __u64 now)
{
	enum drop_reason reason = DROP_CONNECTIONS_FULL;
	enum verdict v = PASS;

	switch (connection_find_opening(&x->transport, now, &x->found)) {
	case FOUND_CONNECTION:
		return NEXT;
	case FOUND_NO_ROOM:
		v = DROP;
		break;
	default:
		if (concern == WIRE_XDP_SERVICE)
			v = wire_xdp_open(ctx, x, &reason);
	}
	if (v == DROP) {
		count_drop(PROGRAM_WIRE_XDP, reason, ctx->data_end - ctx->data);
		if (config_flows != FLOWS_OFF)
			flow_dropped(&x->transport.tuple, flow_what(PROGRAM_WIRE_XDP, reason), x->transport.flags,
				     ctx->data_end - ctx->data, ctx->ingress_ifindex);
	}
	return v;
}

SEC("xdp.frags")
int wire_xdp(struct xdp_md *ctx)
{
	struct frame f;
	__u32 device = ctx->ingress_ifindex;
	const struct uplink *u = bpf_map_lookup_elem(&uplinks, &device);
	struct translation *x = translation_place();
	enum wire_xdp_concern concern;
	const struct connection *c;
	enum verdict v;
	__u64 now;

	if (!config_services || !u || !x || !frame_parse(&f, &x->transport, ctx, u->mac))
		return XDP_PASS;
	concern = wire_xdp_concerns(x, u);
	if (concern == WIRE_XDP_NONE)
		return XDP_PASS;
	now = connection_now();
	c = connection_find(&x->transport, now);
	if (unlikely(!c)) {
		v = wire_xdp_new(ctx, x, concern, now);
		if (v != NEXT)
			return v == DROP ? XDP_DROP : XDP_PASS;
		c = &x->found;
	}
	return wire_xdp_send(ctx, &f, x, c, now);
}
