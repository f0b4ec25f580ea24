/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a packet that has been translated goes on. */
#pragma once

#include "lib/fwd/flow_cache.h"
#include "lib/fwd/endpoint.h"
#include "lib/fwd/route.h"
#include "lib/nat/nat_state.h"
#include "lib/fwd/tunnel.h"

/* What bpf_fib_lookup answers besides a way (include/uapi/linux/bpf.h, BPF_FIB_LKUP_RET_*). */
enum fib_result {
	FIB_SUCCESS = 0,
	FIB_BLACKHOLE = 1,
	FIB_UNREACHABLE = 2,
	FIB_PROHIBIT = 3,
	FIB_NO_NEIGHBOUR = 7, /* the way is known, the neighbour's link-layer address is not */
	FIB_TOO_BIG = 8,      /* the way is known, and the packet does not fit it */
};

/* Asks the kernel's routes and rules for the way from an address to another one; the answer is in x->fib. */
GLOBAL_FN int nexthop_fib_lookup(struct __sk_buff *skb, struct nat_state *x, const struct address *source,
				 const struct address *destination)
{
	if (!x || !source || !destination)
		return FIB_UNREACHABLE;
	__builtin_memset(&x->fib, 0, sizeof(x->fib));
	x->fib.ifindex = skb->ifindex;
	if (address_is_ipv4(destination)) {
		x->fib.family = FAMILY_IPV4;
		x->fib.ipv4_src = source->word[3];
		x->fib.ipv4_dst = destination->word[3];
	} else {
		x->fib.family = FAMILY_IPV6;
		__builtin_memcpy(x->fib.ipv6_src, source, sizeof(x->fib.ipv6_src));
		__builtin_memcpy(x->fib.ipv6_dst, destination, sizeof(x->fib.ipv6_dst));
	}
	return bpf_fib_lookup(skb, &x->fib, sizeof(x->fib), 0);
}

static __always_inline bool nexthop_is_known(int result)
{
	return result == FIB_SUCCESS || result == FIB_NO_NEIGHBOUR || result == FIB_TOO_BIG;
}

/* The kernel's way, as a route. The stack's (ROUTE_UNKNOWN) if it goes to the node itself, or nowhere. */
static __always_inline void nexthop_from_fib(struct __sk_buff *skb, struct nat_state *x, struct route *route,
					     const struct address *source, const struct address *destination)
{
	int result = nexthop_fib_lookup(skb, x, source, destination);
	__u32 ifindex = x->fib.ifindex;
	const struct uplink *uplink;

	route->kind = ROUTE_UNKNOWN;
	if (!nexthop_is_known(result))
		return;
	route->kind = ROUTE_REMOTE;
	route->ifindex = ifindex;
	route->resolved = result != FIB_NO_NEIGHBOUR;
	route->mtu = x->fib.mtu_result;
	if (!route->resolved) {
		uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
		route->mtu = uplink ? uplink->mtu : 0xffff;
	}
	__builtin_memcpy(route->next_hop_mac, x->fib.dmac, ETH_ALEN);
	__builtin_memcpy(route->uplink_mac, x->fib.smac, ETH_ALEN);
	if (x->fib.family == FAMILY_IPV4)
		address_from_ipv4(&route->next_hop, x->fib.ipv4_dst);
	else
		__builtin_memcpy(&route->next_hop, x->fib.ipv6_dst, sizeof(route->next_hop));
}

/*
 * Decides about packets from `source` to `destination`, which translation has made: ROUTE_LOCAL straight into a pod,
 * ROUTE_REMOTE and ROUTE_TUNNEL to where those say, ROUTE_CLUSTER to a pod through the stack, ROUTE_UNKNOWN to the
 * stack. A pod that reaches itself never goes through the stack, which takes nothing from its own addresses.
 */
GLOBAL_FN int nexthop_resolve(struct __sk_buff *skb, struct nat_state *x, struct flow_cache_entry *d,
			      const struct address *source, const struct address *destination)
{
	__u32 now = flow_cache_generation();
	const struct endpoint *e;
	struct address to;

	if (!x || !d || !source || !destination)
		return 0;
	to = *destination;
	e = endpoint_of(&to);
	d->expires = 0;
	d->nat_checks = 0;
	d->enforce = 0;
	if (e) {
		endpoint_route(&d->route, &to);
		if (e->ifindex == skb->ifindex) {
			d->route.kind = ROUTE_LOCAL;
			d->route.ifindex = e->ifindex;
			__builtin_memcpy(d->route.next_hop_mac, e->pod_mac, ETH_ALEN);
			__builtin_memcpy(d->route.uplink_mac, e->host_mac, ETH_ALEN);
		} else if (!config_ebpf_routing) {
			d->route.kind = ROUTE_CLUSTER;
		}
		if (policy_tracks() && e->ifindex != skb->ifindex)
			d->enforce = policy_enforce(&to, &d->route);
	} else {
		enum route_kind kind = route_copy(destination, &d->route);

		if (kind != ROUTE_REMOTE && kind != ROUTE_TUNNEL) {
			nexthop_from_fib(skb, x, &d->route, source, destination);
			d->expires = (ktime_coarse() >> 30) + 1;
		}
	}
	flow_cache_store(d, source, destination, skb->ifindex | SCOPE_TRANSLATED, now);
	return 0;
}

/* Whether who asks the kernel's routes also tells its neighbour table: every time for the same packets, else sometimes. */
static __always_inline bool nexthop_renews_neighbour(bool same)
{
	return same || !(bpf_get_prandom_u32() & 63);
}

/*
 * The way of a translated packet; NULL cannot be. What the kernel's routes said holds for about a second. The
 * packet that asks again is sent by the kernel's neighbour table (*fresh), which so learns that the neighbour is in use;
 * where ways push each other out, a few of those that ask do.
 */
static __always_inline struct flow_cache_entry *nexthop_find(struct packet *p, struct nat_state *x,
							     const struct address *source,
							     const struct address *destination, __u64 now, bool *fresh)
{
	struct flow_cache_entry *d = flow_cache_slot(source, destination);
	__u32 state = flow_cache_generation();

	bool same;

	*fresh = false;
	if (!d)
		return 0;
	same = flow_cache_hit(d, source, destination, p->skb->ifindex | SCOPE_TRANSLATED, state);
	if (likely(same && (!d->expires || (__u32)(now >> 30) < d->expires)))
		return d;
	nexthop_resolve(p->skb, x, d, source, destination);
	*fresh = d->expires && nexthop_renews_neighbour(same);
	return d;
}

/* Sends a translated packet its way. What only the stack can do has been left to it before. */
STAGE nexthop_send(struct packet *p, const struct flow_cache_entry *d, bool fresh)
{
	const struct route *route = &d->route;

	switch (route->kind) {
	case ROUTE_LOCAL:
		return endpoint_redirect(p, route);
	case ROUTE_TUNNEL:
		if (!tunnel_encap(p, route))
			return drop(p, DROP_NO_ROUTE);
		ttl_decrement(p);
		p->action = bpf_redirect(route->ifindex, 0);
		return REDIRECT;
	case ROUTE_REMOTE:
		return route_redirect(p, route, route->resolved && !fresh && (d->expires || neigh_lease_valid()));
	default:
		return PASS;
	}
}

/* The same with a frame of its own on the stack. */
static __noinline enum verdict nexthop_send_rare(struct packet *p, const struct flow_cache_entry *d, bool fresh)
{
	return nexthop_send(p, d, fresh);
}
