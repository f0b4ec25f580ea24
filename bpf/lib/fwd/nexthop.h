/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The next hop of translated packets. */
#pragma once

#include "lib/fwd/endpoint.h"
#include "lib/fwd/flow_cache.h"
#include "lib/fwd/route.h"
#include "lib/fwd/tunnel.h"
#include "lib/nat/nat_state.h"

/* Results of bpf_fib_lookup (include/uapi/linux/bpf.h, BPF_FIB_LKUP_RET_*). */
enum fib_result {
	FIB_SUCCESS = 0,
	FIB_UNREACHABLE = 2,
	FIB_NO_NEIGHBOUR = 7, /* a route, but no resolved neighbour */
	FIB_TOO_BIG = 8,      /* a route whose MTU the packet exceeds */
};

/* Fills the parameters of bpf_fib_lookup. */
static __always_inline void nexthop_fib_init(struct bpf_fib_lookup *fib, __u32 ifindex, const struct address *source,
					     const struct address *destination)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ifindex;
	if (address_is_ipv4(destination)) {
		fib->family = FAMILY_IPV4;
		fib->ipv4_src = source->word[3];
		fib->ipv4_dst = destination->word[3];
	} else {
		fib->family = FAMILY_IPV6;
		__builtin_memcpy(fib->ipv6_src, source, sizeof(fib->ipv6_src));
		__builtin_memcpy(fib->ipv6_dst, destination, sizeof(fib->ipv6_dst));
	}
}

/* The route of a successful lookup, except next_hop. */
static __always_inline void nexthop_set_fib(struct route *route, const struct bpf_fib_lookup *fib)
{
	route->kind = ROUTE_REMOTE;
	route->resolved = true;
	route->mtu = fib->mtu_result;
	route->ifindex = fib->ifindex;
	__builtin_memcpy(route->next_hop_mac, fib->dmac, ETH_ALEN);
	__builtin_memcpy(route->uplink_mac, fib->smac, ETH_ALEN);
}

/* Looks up the kernel's routes and rules. The result is in state->fib. */
GLOBAL_FN int nexthop_fib_lookup(struct __sk_buff *skb, struct nat_state *state, const struct address *source,
				 const struct address *destination)
{
	if (!state || !source || !destination)
		return FIB_UNREACHABLE;
	nexthop_fib_init(&state->fib, skb->ifindex, source, destination);
	return bpf_fib_lookup(skb, &state->fib, sizeof(state->fib), 0);
}

static __always_inline bool nexthop_is_known(int result)
{
	return result == FIB_SUCCESS || result == FIB_NO_NEIGHBOUR || result == FIB_TOO_BIG;
}

/* The kernel's route. ROUTE_UNKNOWN if it leads to the node itself or nowhere. */
static __always_inline void nexthop_from_fib(struct __sk_buff *skb, struct nat_state *state, struct route *route,
					     const struct address *source, const struct address *destination)
{
	int result = nexthop_fib_lookup(skb, state, source, destination);
	__u32 ifindex = state->fib.ifindex;
	const struct uplink *uplink;

	route->kind = ROUTE_UNKNOWN;
	if (!nexthop_is_known(result))
		return;
	nexthop_set_fib(route, &state->fib);
	if (result == FIB_NO_NEIGHBOUR) {
		route->resolved = false;
		uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
		route->mtu = uplink ? uplink->mtu : 0xffff;
	}
	if (state->fib.family == FAMILY_IPV4)
		address_from_ipv4(&route->next_hop, state->fib.ipv4_dst);
	else
		__builtin_memcpy(&route->next_hop, state->fib.ipv6_dst, sizeof(route->next_hop));
}

/*
 * Whether only the kernel stack finds the route: bpf_fib_lookup takes the default routes of table main, which the
 * routing rules of pods of IPPools suppress, for IPv6 (Linux 6.18).
 */
static __always_inline bool nexthop_suppressed(const struct address *source)
{
	struct address pod = *source; /* Linux 6.1 takes keys from the stack only */
	const struct endpoint *e;

	if (address_is_ipv4(&pod))
		return false;
	e = endpoint_of(&pod);
	return e && e->underlay && !e->parent;
}

/*
 * Whether a lookup of the kernel's routes also refreshes the neighbour entry: always for the same packets,
 * sometimes for others.
 */
static __always_inline bool nexthop_renews_neighbour(bool same)
{
	return same || !(bpf_get_prandom_u32() & 63);
}

/*
 * Resolves the next hop of packets from `source` to `destination`, their addresses after NAT. ROUTE_LOCAL: into a
 * pod. ROUTE_REMOTE, ROUTE_TUNNEL, ROUTE_ENCRYPTED: to another node. ROUTE_CLUSTER: to a pod through the kernel stack.
 * ROUTE_UNKNOWN: kernel stack. A pod that reaches itself is always redirected: the kernel stack drops packets with
 * a local source. Sets state->renew. The result has no meaning.
 */
GLOBAL_FN int nexthop_resolve(struct __sk_buff *skb, struct nat_state *state, struct flow_cache_entry *fc,
			      const struct address *source, const struct address *destination)
{
	__u32 now = flow_cache_generation();
	const struct endpoint *e;
	struct address to;
	bool same;

	if (!state || !fc || !source || !destination)
		return 0;
	same = flow_cache_hit(fc, source, destination, skb->ifindex | SCOPE_TRANSLATED, now);
	to = *destination;
	e = endpoint_of(&to);
	fc->expires = 0;
	fc->nat_checks = 0;
	fc->enforce = 0;
	if (e) {
		endpoint_route(&fc->route, &to);
		if (e->ifindex == skb->ifindex) {
			endpoint_set_route(&fc->route, e);
		} else if (!config_ebpf_routing) {
			fc->route.kind = ROUTE_CLUSTER;
		}
		if (policy_tracks() && e->ifindex != skb->ifindex)
			fc->enforce = policy_enforce(&to, &fc->route);
	} else {
		enum route_kind kind = route_copy(destination, &fc->route);

		if (kind == ROUTE_UNKNOWN && nexthop_suppressed(source)) {
			fc->route.kind = ROUTE_UNKNOWN;
		} else if (kind != ROUTE_REMOTE && !route_is_tunnel(kind)) {
			nexthop_from_fib(skb, state, &fc->route, source, destination);
			fc->expires = (ktime_coarse() >> 30) + 1;
		}
	}
	flow_cache_store(fc, source, destination, skb->ifindex | SCOPE_TRANSLATED, now);
	state->renew = fc->expires && nexthop_renews_neighbour(same);
	return 0;
}

/*
 * The flow cache entry of a translated packet. A result from the kernel's routes is valid for about a second. The
 * packet that renews it goes through bpf_redirect_neigh (state->renew), so that the kernel keeps the neighbour
 * reachable. Where entries evict each other, only a few packets do.
 */
static __always_inline struct flow_cache_entry *nexthop_find(struct packet *p, struct nat_state *state,
							     const struct address *source,
							     const struct address *destination, __u64 now)
{
	struct flow_cache_entry *fc = flow_cache_slot(source, destination, CACHED_INGRESS);
	__u32 generation = flow_cache_generation();

	if (!fc)
		return 0;
	state->renew = false;
	if (unlikely(!flow_cache_hit(fc, source, destination, p->skb->ifindex | SCOPE_TRANSLATED, generation) ||
		     (fc->expires && (__u32)(now >> 30) >= fc->expires)))
		nexthop_resolve(p->skb, state, fc, source, destination);
	return fc;
}

/* Sends a translated packet to its next hop. The caller has handled what needs the kernel stack. */
STAGE nexthop_send(struct packet *p, const struct nat_state *state, const struct flow_cache_entry *fc)
{
	const struct route *route = &fc->route;

	switch (route->kind) {
	case ROUTE_LOCAL:
		return endpoint_redirect(p, route);
	case ROUTE_TUNNEL:
	case ROUTE_ENCRYPTED:
		if (!tunnel_encap(p, route))
			return drop(p, route->kind == ROUTE_ENCRYPTED ? DROP_ENCRYPTION_PENDING : DROP_NO_ROUTE);
		ttl_decrement(p);
		p->action = bpf_redirect(route->ifindex, 0);
		return REDIRECT;
	case ROUTE_REMOTE:
		return route_redirect(p, route,
				      route->resolved && !state->renew && (fc->expires || neigh_lease_valid()));
	default:
		return PASS;
	}
}

/* nexthop_send in a stack frame of its own. */
static __noinline enum verdict nexthop_send_rare(struct packet *p, const struct nat_state *state,
						 const struct flow_cache_entry *fc)
{
	return nexthop_send(p, state, fc);
}
