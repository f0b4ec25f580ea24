/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a packet that has been translated goes on. */
#pragma once

#include "decision.h"
#include "endpoint.h"
#include "route.h"
#include "translation.h"
#include "tunnel.h"

/* What bpf_fib_lookup answers besides a way (include/uapi/linux/bpf.h, BPF_FIB_LKUP_RET_*). */
enum fib_answer {
	FIB_SUCCESS = 0,
	FIB_BLACKHOLE = 1,
	FIB_UNREACHABLE = 2,
	FIB_PROHIBIT = 3,
	FIB_NO_NEIGHBOUR = 7, /* the way is known, the neighbour's link-layer address is not */
	FIB_TOO_BIG = 8,      /* the way is known, and the packet does not fit it */
};

/* Asks the kernel's routes and rules for the way from an address to another one; the answer is in x->fib. */
SEPARATE int way_ask_kernel(struct __sk_buff *skb, struct translation *x, const struct address *source,
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

static __always_inline bool way_is_known(int fib_answer)
{
	return fib_answer == FIB_SUCCESS || fib_answer == FIB_NO_NEIGHBOUR || fib_answer == FIB_TOO_BIG;
}

/* The kernel's way, as a route. The stack's (ROUTE_UNKNOWN) if it goes to the node itself, or nowhere. */
static __always_inline void way_of_kernel(struct __sk_buff *skb, struct translation *x, struct route *way,
					  const struct address *source, const struct address *destination)
{
	int answer = way_ask_kernel(skb, x, source, destination);
	__u32 ifindex = x->fib.ifindex;
	const struct uplink *uplink;

	way->kind = ROUTE_UNKNOWN;
	if (!way_is_known(answer))
		return;
	way->kind = ROUTE_REMOTE;
	way->ifindex = ifindex;
	way->resolved = answer != FIB_NO_NEIGHBOUR;
	way->mtu = x->fib.mtu_result;
	if (!way->resolved) {
		uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
		way->mtu = uplink ? uplink->mtu : 0xffff;
	}
	__builtin_memcpy(way->next_hop_mac, x->fib.dmac, ETH_ALEN);
	__builtin_memcpy(way->uplink_mac, x->fib.smac, ETH_ALEN);
	if (x->fib.family == FAMILY_IPV4)
		address_from_ipv4(&way->next_hop, x->fib.ipv4_dst);
	else
		__builtin_memcpy(&way->next_hop, x->fib.ipv6_dst, sizeof(way->next_hop));
}

/*
 * Decides about packets from `source` to `destination`, which translation has made: ROUTE_LOCAL straight into a pod,
 * ROUTE_REMOTE and ROUTE_TUNNEL to where those say, ROUTE_CLUSTER to a pod through the stack, ROUTE_UNKNOWN to the
 * stack. A pod that reaches itself never goes through the stack, which takes nothing from its own addresses.
 */
SEPARATE int way_decide(struct __sk_buff *skb, struct translation *x, struct decision *d, const struct address *source,
			const struct address *destination)
{
	__u32 now = decision_generation();
	const struct endpoint *e;
	struct address to;

	if (!x || !d || !source || !destination)
		return 0;
	to = *destination;
	e = endpoint_of(&to);
	d->expires = 0;
	d->translated = 0;
	d->policed = 0;
	if (e) {
		endpoint_way(&d->route, &to);
		if (e->ifindex == skb->ifindex) {
			d->route.kind = ROUTE_LOCAL;
			d->route.ifindex = e->ifindex;
			__builtin_memcpy(d->route.next_hop_mac, e->pod_mac, ETH_ALEN);
			__builtin_memcpy(d->route.uplink_mac, e->host_mac, ETH_ALEN);
		} else if (!config_ebpf_routing) {
			d->route.kind = ROUTE_CLUSTER;
		}
		if (policy_tracks() && e->ifindex != skb->ifindex)
			d->policed = policy_policed(&to, &d->route);
	} else {
		enum route_kind kind = route_copy(destination, &d->route);

		if (kind != ROUTE_REMOTE && kind != ROUTE_TUNNEL) {
			way_of_kernel(skb, x, &d->route, source, destination);
			d->expires = (connection_now() >> 30) + 1;
		}
	}
	decision_keep(d, source, destination, skb->ifindex | SCOPE_TRANSLATED, now);
	return 0;
}

/* Whether who asks the kernel's routes also tells its neighbour table: every time for the same packets, else sometimes. */
static __always_inline bool way_renews(bool same)
{
	return same || !(bpf_get_prandom_u32() & 63);
}

/*
 * The way of a translated packet; NULL cannot be. What the kernel's routes said holds for about a second. The
 * packet that asks again is sent by the kernel's neighbour table (*fresh), which so learns that the neighbour is in use;
 * where ways push each other out, a few of those that ask do.
 */
static __always_inline struct decision *way_out(struct packet *p, struct translation *x, const struct address *source,
						const struct address *destination, __u64 now, bool *fresh)
{
	struct decision *d = decision_place(source, destination);
	__u32 state = decision_generation();

	bool same;

	*fresh = false;
	if (!d)
		return 0;
	same = decision_holds(d, source, destination, p->skb->ifindex | SCOPE_TRANSLATED, state);
	if (likely(same && (!d->expires || (__u32)(now >> 30) < d->expires)))
		return d;
	way_decide(p->skb, x, d, source, destination);
	*fresh = d->expires && way_renews(same);
	return d;
}

/* Puts the packet into a pod, also into the one that it came from. */
STAGE way_deliver(struct packet *p, const struct route *way)
{
	__builtin_memcpy(p->eth->h_dest, way->next_hop_mac, ETH_ALEN);
	__builtin_memcpy(p->eth->h_source, way->uplink_mac, ETH_ALEN);
	hop_take(p);
	p->action = bpf_redirect_peer(way->ifindex, 0);
	return REDIRECT;
}

/* Sends a translated packet its way. What only the stack can do has been left to it before. */
STAGE way_send(struct packet *p, const struct decision *d, bool fresh)
{
	const struct route *way = &d->route;

	switch (way->kind) {
	case ROUTE_LOCAL:
		return way_deliver(p, way);
	case ROUTE_TUNNEL:
		if (!tunnel_enter(p, way))
			return drop(p, DROP_NO_ROUTE);
		hop_take(p);
		p->action = bpf_redirect(way->ifindex, 0);
		return REDIRECT;
	case ROUTE_REMOTE:
		return route_leave(p, way, way->resolved && !fresh && (d->expires || route_neighbours_followed()));
	default:
		return PASS;
	}
}

/* The same with a frame of its own on the stack. */
static __noinline enum verdict way_send_rare(struct packet *p, const struct decision *d, bool fresh)
{
	return way_send(p, d, fresh);
}
