/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XDP of an uplink: a packet arrives from outside the node, before the kernel makes an skb of it. What only passes
 * through on its way to a backend of another node, and what comes back from there, turns round here. All else goes
 * on to from_wire, which does the same with the same tables.
 */
#pragma once

#include "config.h"
#pragma clang diagnostic ignored "-Wunused-function"
#include "lib/connection.h"
#include "lib/decision.h"
#include "lib/finish.h"
#include "lib/rewrite_xdp.h"
#include "lib/route.h"
#include "lib/service.h"

/* How a packet leaves: by which uplink, and with which link-layer addresses. */
struct exit {
	__u32 ifindex;
	__u8 to[ETH_ALEN], from[ETH_ALEN];
};

/* The way to an address that comes after translation; NULL where the next stage of the kernel has to see to it. */
static __always_inline const struct route *wire_xdp_route(const struct connection *c, __u32 device)
{
	struct decision *d = decision_place(&c->source, &c->destination);
	__u32 now = decision_generation();
	const struct route *r;

	if (!d)
		return 0; /* cannot be: every index has its element */
	if (likely(decision_holds(d, &c->source, &c->destination, device | SCOPE_XDP, now)))
		return &d->route;
	r = route_of(&c->destination);
	if (r)
		d->route = *r;
	else
		d->route.kind = ROUTE_UNKNOWN;
	decision_keep(d, &c->source, &c->destination, device | SCOPE_XDP, now);
	return &d->route;
}

/* By the kernel's routes and neighbours. False where these do not lead out through a device, or not with this length. */
static __noinline bool wire_xdp_ask_kernel(struct xdp_md *ctx, const struct transport *t, const struct connection *c,
					   __u32 length, struct exit *e)
{
	struct bpf_fib_lookup fib = {
		.ifindex = ctx->ingress_ifindex,
		.l4_protocol = t->tuple.protocol,
		.sport = c->source_port,
		.dport = c->destination_port,
		.tot_len = length,
	};

	if (address_is_ipv4(&c->destination)) {
		fib.family = FAMILY_IPV4;
		fib.ipv4_src = c->source.word[3];
		fib.ipv4_dst = c->destination.word[3];
	} else {
		fib.family = FAMILY_IPV6;
		__builtin_memcpy(fib.ipv6_src, &c->source, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &c->destination, sizeof(fib.ipv6_dst));
	}
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return false;
	e->ifindex = fib.ifindex;
	__builtin_memcpy(e->to, fib.dmac, ETH_ALEN);
	__builtin_memcpy(e->from, fib.smac, ETH_ALEN);
	return true;
}

/* Where a packet with these addresses leaves. False if not through an uplink at once: into a pod, into a tunnel, or after the neighbour has been asked for. */
static __always_inline bool wire_xdp_exit(const struct frame *f, const struct transport *t, const struct connection *c,
					  struct exit *e)
{
	const struct route *r = wire_xdp_route(c, f->ctx->ingress_ifindex);

	if (!r || f->hops <= 1)
		return false;
	switch (r->kind) {
	case ROUTE_REMOTE:
		if (!r->resolved || f->length > r->mtu || !route_neighbours_followed())
			return false;
		e->ifindex = r->ifindex;
		__builtin_memcpy(e->to, r->next_hop_mac, ETH_ALEN);
		__builtin_memcpy(e->from, r->uplink_mac, ETH_ALEN);
		break;
	case ROUTE_UNKNOWN:
	case ROUTE_CLUSTER:
		if (!wire_xdp_ask_kernel(f->ctx, t, c, f->length, e))
			return false;
		break;
	default:
		return false;
	}
	return e->ifindex == f->ctx->ingress_ifindex || bpf_map_lookup_elem(&xdp_uplinks, &e->ifindex);
}

/* Translates the packet, unless its backend's node is to have it as it came, and sends it. */
static __always_inline int wire_xdp_send(struct frame *f, const struct transport *t, const struct connection *c)
{
	struct exit e;

	if (!wire_xdp_exit(f, t, c, &e))
		return XDP_PASS;
	if (!(c->flags & CONNECTION_DIRECT))
		frame_translate(f, c, t->tuple.protocol);
	frame_take_hop(f);
	__builtin_memcpy(f->eth->h_dest, e.to, ETH_ALEN);
	__builtin_memcpy(f->eth->h_source, e.from, ETH_ALEN);
	return e.ifindex == f->ctx->ingress_ifindex ? XDP_TX : bpf_redirect_map(&xdp_uplinks, e.ifindex, XDP_DROP);
}

/* Whether a packet may be one of a translated connection: an answer to a port that translation gave, or one to a Service. */
static __always_inline bool wire_xdp_concerns(const struct transport *t, const struct uplink *u)
{
	const struct address *own = address_is_ipv4(&t->tuple.destination) ? &u->ipv4 : &u->ipv6;
	struct frontend f;

	if (connection_port_is_ours(t->tuple.destination_port) && address_equals(&t->tuple.destination, own))
		return true;
	service_frontend(&f, &t->tuple);
	return service_of(&f);
}

/* What becomes of a packet that may be of a translated connection. */
static __always_inline int wire_xdp_translate(struct frame *f, const struct transport *t)
{
	const struct connection *c = connection_find(t, connection_now());
	struct connection opening;

	if (likely(c))
		return c->flags & CONNECTION_PLAIN ? XDP_PASS : wire_xdp_send(f, t, c);
	if (connection_find_opening(t, connection_now(), &opening) == FOUND_CONNECTION)
		return opening.flags & CONNECTION_PLAIN ? XDP_PASS : wire_xdp_send(f, t, &opening);
	return XDP_PASS;
}

SEC("xdp.frags")
int wire_xdp(struct xdp_md *ctx)
{
	struct frame f = {.ctx = ctx};
	__u32 device = ctx->ingress_ifindex;
	const struct uplink *u = bpf_map_lookup_elem(&uplinks, &device);
	struct transport t;

	if (!config_services || !u || !frame_parse(&f, &t, u->mac) || !wire_xdp_concerns(&t, u))
		return XDP_PASS;
	return wire_xdp_translate(&f, &t);
}
