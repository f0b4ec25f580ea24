/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XDP of an uplink, before the kernel allocates an skb. Forwards connections to Services whose backend is on
 * another node, in both directions. All other packets go on to from_wire, which uses the same maps.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/nat/nat_new.h"
#include "lib/net/rewrite_xdp.h"

/* Looks up the kernel's routes and neighbours: ROUTE_REMOTE, or ROUTE_UNKNOWN if there is no resolved neighbour. */
static __noinline void wire_xdp_fib_lookup(struct xdp_md *ctx, struct nat_state *state, struct route *route,
					   const struct nat_entry *entry)
{
	struct bpf_fib_lookup *fib = &state->fib;

	nexthop_fib_init(fib, ctx->ingress_ifindex, &entry->source, &entry->destination);
	route->kind = ROUTE_UNKNOWN;
	if (bpf_fib_lookup(ctx, fib, sizeof(*fib), 0) == FIB_SUCCESS)
		nexthop_set_fib(route, fib);
}

/* Resolves the next hop of packets that *entry translates. */
static __noinline void wire_xdp_resolve(struct xdp_md *ctx, struct nat_state *state, struct flow_cache_entry *fc,
					const struct nat_entry *entry, __u64 now)
{
	__u32 generation = flow_cache_generation();
	const struct route *r = route_of(&entry->destination);

	fc->expires = 0;
	fc->nat_checks = 0;
	if (r && r->kind != ROUTE_CLUSTER) {
		fc->route = *r;
	} else {
		wire_xdp_fib_lookup(ctx, state, &fc->route, entry);
		fc->expires = (now >> 30) + 1;
	}
	flow_cache_store(fc, &entry->source, &entry->destination, ctx->ingress_ifindex | SCOPE_XDP, generation);
}

/*
 * The flow cache entry of packets that *entry translates. NULL for about one packet a second that follows the
 * kernel's routes: tc sends it, which keeps the neighbour reachable (nexthop_find).
 */
static __always_inline const struct flow_cache_entry *wire_xdp_nexthop(struct xdp_md *ctx, struct nat_state *state,
								       const struct nat_entry *entry, __u64 now)
{
	struct flow_cache_entry *fc = flow_cache_slot(&entry->source, &entry->destination, CACHED_XDP);
	bool same;

	if (!fc)
		return 0; /* internal error */
	same = flow_cache_hit(fc, &entry->source, &entry->destination, ctx->ingress_ifindex | SCOPE_XDP,
			      flow_cache_generation());
	if (likely(same && (!fc->expires || (__u32)(now >> 30) < fc->expires)))
		return fc;
	wire_xdp_resolve(ctx, state, fc, entry, now);
	return fc->expires && nexthop_renews_neighbour(same) ? 0 : fc;
}

/* Whether the packet may be redirected: to a remote node, with a resolved neighbour, and within the MTU. */
static __always_inline bool wire_xdp_may_send(struct xdp_md *ctx, const struct frame *f,
					      const struct flow_cache_entry *fc)
{
	const struct route *route = &fc->route;

	if (route->kind != ROUTE_REMOTE || !route->resolved || f->length > route->mtu || f->ttl <= 1)
		return false;
	if (!fc->expires && !neigh_lease_valid())
		return false;
	return route->ifindex == ctx->ingress_ifindex || bpf_map_lookup_elem(&xdp_uplinks, &route->ifindex);
}

/*
 * Translates and redirects the packet; with DSR it stays unchanged. Connections without NAT_WIRE may have forged
 * packets: from_wire validates their sources.
 */
static __always_inline int wire_xdp_send(struct xdp_md *ctx, struct frame *f, struct nat_state *state,
					 const struct nat_entry *entry, __u64 now)
{
	const struct flow_cache_entry *fc;

	if (!(entry->flags & NAT_WIRE))
		return XDP_PASS;
	fc = wire_xdp_nexthop(ctx, state, entry, now);
	if (!fc || !wire_xdp_may_send(ctx, f, fc))
		return XDP_PASS;
	if (!(entry->flags & NAT_DSR))
		frame_nat(f, entry, state->transport.tuple.protocol);
	frame_decrement_ttl(f);
	packet_set_macs(f->eth, &fc->route);
	if (likely(fc->route.ifindex == ctx->ingress_ifindex))
		return XDP_TX;
	return bpf_redirect_map(&xdp_uplinks, fc->route.ifindex, XDP_DROP);
}

/* Passes a new connection to tc, which will count it again. */
static __always_inline enum verdict wire_xdp_pass_new(const struct lb_choice *choice, int verdict)
{
	struct service_count *count = service_count_get(choice->service);

	if (count && verdict == LB_BACKEND)
		count->connections--;
	else if (count)
		count->rejected--;
	return PASS;
}

/*
 * The first packet of a connection to a Service. With NEXT, state->entry is its new entry. Connections that do not
 * leave by a wire are passed to tc, and so are rejects.
 */
STAGE wire_xdp_new(struct xdp_md *ctx, struct nat_state *state, enum drop_reason *reason)
{
	struct nat_entry *to = &state->fresh.to;
	int verdict;
	const struct route *r;

	if (state->transport.tuple.protocol == PROTOCOL_TCP && !transport_is_syn(&state->transport))
		return PASS;
	if (!source_valid_from_wire(&state->transport.tuple.source, &state->transport.tuple.destination))
		return PASS; /* from_wire drops it */
	nat_new_init(state, nat_owner_external(&state->transport.tuple.source));
	verdict = service_choose(&state->transport.tuple, LB_EXTERNAL, 0, &state->choice);
	if (verdict == LB_REJECT)
		return wire_xdp_pass_new(&state->choice, LB_REJECT);
	if (verdict != LB_BACKEND) {
		*reason = verdict;
		return verdict == LB_NONE ? PASS : DROP;
	}
	r = route_of(&state->choice.backend.address);
	if (!r || r->kind != ROUTE_REMOTE)
		return wire_xdp_pass_new(&state->choice, LB_BACKEND);
	to->destination = state->choice.backend.address;
	to->destination_port = state->choice.backend.port;
	to->service = state->choice.service;
	to->flags |= NAT_WIRE;
	if (dsr_may(state, r->kind))
		to->flags |= NAT_DSR;
	else if (snat_use_uplink(state, r->ifindex, DROP_NO_ROUTE) != SNAT_NODE)
		return wire_xdp_pass_new(&state->choice, LB_BACKEND);
	*reason = snat_xdp_alloc(ctx, state);
	return *reason ? DROP : NEXT;
}

/* What a packet is, by its destination. */
enum wire_xdp_class {
	WIRE_XDP_NONE,	  /* not forwarded here */
	WIRE_XDP_REPLY,	  /* to a port in the SNAT range */
	WIRE_XDP_SERVICE, /* to a frontend */
};

/* Two lookups classify a packet; most are not forwarded here. */
static __always_inline enum wire_xdp_class wire_xdp_classify(struct nat_state *state, const struct uplink *u)
{
	const struct tuple *t = &state->transport.tuple;
	const struct address *own = address_is_ipv4(&t->destination) ? &u->ipv4 : &u->ipv6;

	if (nat_has_service(state))
		return WIRE_XDP_SERVICE;
	return nat_port_in_range(t->destination_port) && address_equals(&t->destination, own) ? WIRE_XDP_REPLY
											      : WIRE_XDP_NONE;
}

/* A packet without an established connection. With NEXT, state->entry is its entry. */
static __noinline enum verdict wire_xdp_unknown(struct xdp_md *ctx, struct nat_state *state, enum wire_xdp_class class,
						__u64 now)
{
	enum drop_reason reason = DROP_NAT_TABLE_FULL;
	enum verdict v = PASS;

	switch (nat_find_pending(&state->transport, now, &state->entry)) {
	case NAT_FIND_ENTRY:
		return NEXT;
	case NAT_FIND_FULL:
		v = DROP;
		break;
	default:
		if (class == WIRE_XDP_SERVICE)
			v = wire_xdp_new(ctx, state, &reason);
	}
	if (v == DROP) {
		__u32 bytes = ctx->data_end - ctx->data;

		count_drop(PROGRAM_WIRE_XDP, reason, bytes);
		if (config_flows != FLOWS_OFF)
			flow_dropped(&state->transport.tuple, flow_drop_id(PROGRAM_WIRE_XDP, reason),
				     state->transport.flags, bytes, ctx->ingress_ifindex);
	}
	return v;
}

SEC("xdp.frags")
int wire_xdp(struct xdp_md *ctx)
{
	struct frame f;
	__u32 device = ctx->ingress_ifindex;
	const struct uplink *u = bpf_map_lookup_elem(&uplinks, &device);
	struct nat_state *state = nat_state_get();
	enum wire_xdp_class class;
	const struct nat_entry *entry;
	enum verdict v;
	__u64 now;

	if (!config_services || !u || !state || !frame_parse(&f, &state->transport, ctx, u->mac))
		return XDP_PASS;
	class = wire_xdp_classify(state, u);
	if (class == WIRE_XDP_NONE)
		return XDP_PASS;
	now = ktime_coarse();
	entry = nat_find(&state->transport, now);
	if (unlikely(!entry)) {
		v = wire_xdp_unknown(ctx, state, class, now);
		if (v != NEXT)
			return v == DROP ? XDP_DROP : XDP_PASS;
		entry = &state->entry;
	}
	return wire_xdp_send(ctx, &f, state, entry, now);
}
