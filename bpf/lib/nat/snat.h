/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SNAT: the source address of a new connection. NodePort connections and masqueraded ones get an address of this
 * node.
 */
#pragma once

#include "lib/fwd/endpoint.h"
#include "lib/fwd/nexthop.h"
#include "lib/lb/dsr.h"
#include "lib/nat/snat_port.h"

/* The uplink's address of the same family as `like`; NULL if the device is no uplink or has none. */
static __always_inline const struct address *snat_address(__u32 ifindex, const struct address *like)
{
	const struct uplink *uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
	const struct address *a;

	if (!uplink)
		return 0;
	a = address_is_ipv4(like) ? &uplink->ipv4 : &uplink->ipv6;
	return address_is_zero(a) ? 0 : a;
}

/* Whether untranslated packets must be dropped: a pod's address would leave the cluster. */
static __always_inline bool snat_required(enum hook hook, __u32 checks)
{
	const __u32 masqueraded = NAT_CHECK_EXTERNAL | NAT_CHECK_MASQUERADE;

	return (hook == HOOK_FROM_POD || hook == HOOK_TO_WIRE) && (checks & masqueraded) == masqueraded;
}

/* Marks a pod: its packets are looked up for NAT from now on. Returns false if the map is full. */
GLOBAL_FN bool nat_mark_pod(const struct address *pod)
{
	__u64 *since, now = ktime_coarse();
	__u32 index = GENERATION_PODS;
	struct address key;
	__u32 *pods;

	if (!pod)
		return false;
	key = *pod;
	if (!endpoint_of(&key))
		return true; /* no pod has this address */
	since = bpf_map_lookup_elem(&nat_pods, &key);
	if (since) {
		*since = now;
		return true;
	}
	if (bpf_map_update_elem(&nat_pods, &key, &now, BPF_ANY))
		return false;
	pods = bpf_map_lookup_elem(&generation, &index);
	if (pods)
		__sync_fetch_and_add(pods, 1);
	return true;
}

/* Sets the source to an address of an uplink. */
static __always_inline int snat_use_uplink(struct nat_state *state, __u32 ifindex, int no_backend)
{
	const struct address *a = snat_address(ifindex, &state->fresh.to.destination);

	if (!a)
		return no_backend;
	state->fresh.to.source = *a;
	return SNAT_NODE;
}

/*
 * Sets the source to an InternalIP, the only sources that the other end of a tunnel accepts from this node.
 * Returns false if there is none of the family.
 */
static __always_inline bool snat_use_tunnel(struct nat_entry *to)
{
	__u32 family = !address_is_ipv4(&to->destination);
	const struct address *a = bpf_map_lookup_elem(&tunnel_sources, &family);

	if (!a || address_is_zero(a))
		return false;
	to->source = *a;
	return true;
}

/*
 * Masquerades: a pod's connection gets the address of the uplink that it leaves by. Without an address of the
 * family it is dropped, since the pod's address would leave the cluster.
 */
GLOBAL_FN int snat_masquerade(struct __sk_buff *skb, struct nat_state *state, enum hook hook)
{
	struct nat_entry *to;
	__u32 device;
	int no_backend;

	if (!state)
		return SNAT_STACK;
	to = &state->fresh.to;
	no_backend = to->service ? SNAT_KEEP : SNAT_STACK;
	if (hook == HOOK_TO_WIRE)
		return snat_use_uplink(state, skb->ifindex, DROP_NO_MASQUERADE_ADDRESS);
	if (!nexthop_is_known(nexthop_fib_lookup(skb, state, &to->source, &to->destination)))
		return no_backend;
	device = state->fib.ifindex;
	return bpf_map_lookup_elem(&uplinks, &device) ? snat_use_uplink(state, device, DROP_NO_MASQUERADE_ADDRESS)
						      : no_backend;
}

/*
 * A pod that reaches itself through a Service needs another source: its kernel would reply to itself directly. If
 * no route leads to the Service's address, that address is local or unused and serves as the source.
 */
static __always_inline int snat_hairpin(struct __sk_buff *skb, struct nat_state *state)
{
	struct nat_entry *to = &state->fresh.to;

	if (nexthop_is_known(nexthop_fib_lookup(skb, state, &to->source, &state->fresh.key.destination)))
		return snat_use_uplink(state, state->fib.ifindex, DROP_NO_ROUTE);
	to->source = state->fresh.key.destination;
	return SNAT_NODE;
}

/* From a pod to a backend. The pod's address stays unless the backend is external. */
GLOBAL_FN int snat_from_pod(struct __sk_buff *skb, struct nat_state *state, __u32 checks)
{
	enum route_kind kind;
	struct nat_entry *to;

	if (!state)
		return SNAT_STACK;
	to = &state->fresh.to;
	kind = route_copy(&to->destination, &state->route);
	if (!nat_mark_pod(&to->source) || (kind == ROUTE_LOCAL && !nat_mark_pod(&to->destination)))
		return DROP_NAT_TABLE_FULL;
	if (address_equals(&to->source, &to->destination))
		return snat_hairpin(skb, state);
	if (kind == ROUTE_UNKNOWN && checks & NAT_CHECK_MASQUERADE)
		return snat_masquerade(skb, state, HOOK_FROM_POD);
	return SNAT_KEEP;
}

/*
 * From the wire to a backend. A local backend sees the client's address, since its replies pass this node. A
 * backend on another node sees an address of this node.
 */
GLOBAL_FN int snat_from_wire(struct __sk_buff *skb, struct nat_state *state, __u32 checks)
{
	enum route_kind kind;
	struct nat_entry *to;

	if (!state)
		return SNAT_STACK;
	to = &state->fresh.to;
	kind = route_copy(&to->destination, &state->route);
	if (kind == ROUTE_LOCAL) {
		struct address backend = to->destination; /* Linux 6.1 takes keys from the stack only */
		const struct endpoint *e = endpoint_of(&backend);
		bool external = route_copy(&to->source, &state->route) == ROUTE_UNKNOWN;

		/* Packets of other pods to external addresses are looked up in any case. */
		if ((!external || (e && e->underlay)) && !nat_mark_pod(&to->destination))
			return DROP_NAT_TABLE_FULL;
		return SNAT_KEEP;
	}
	if ((!route_is_tunnel(kind) || route_of_host(&to->destination)) && !(checks & NAT_CHECK_TUNNEL))
		to->flags |= NAT_WIRE;
	if (dsr_may(state, kind) && !(checks & NAT_CHECK_STACK)) {
		to->flags |= NAT_DSR;
		return SNAT_KEEP;
	}
	if (kind == ROUTE_REMOTE)
		return snat_use_uplink(state, state->route.ifindex, DROP_NO_ROUTE);
	if (route_is_tunnel(kind)) {
		if (snat_use_tunnel(to))
			return SNAT_NODE;
		if (!nexthop_is_known(nexthop_fib_lookup(skb, state, &state->route.next_hop, &state->route.next_hop)))
			return DROP_NO_ROUTE;
	} else if (!nexthop_is_known(nexthop_fib_lookup(skb, state, &to->source, &to->destination))) {
		return SNAT_KEEP;
	}
	return snat_use_uplink(state, state->fib.ifindex, DROP_NO_ROUTE);
}

/*
 * Chooses the source of a new connection. Other than Services: masquerades external connections of pods, and
 * records external connections to pods.
 */
static __always_inline int snat_choose(struct __sk_buff *skb, struct nat_state *state, enum hook hook, __u32 checks)
{
	if (state->fresh.to.service)
		return hook == HOOK_FROM_POD ? snat_from_pod(skb, state, checks) : snat_from_wire(skb, state, checks);
	if (snat_required(hook, checks))
		return snat_masquerade(skb, state, hook);
	if (hook != HOOK_FROM_WIRE || !(checks & NAT_CHECK_EXTERNAL))
		return SNAT_STACK;
	state->fresh.to.flags |= NAT_UNCHANGED;
	return SNAT_KEEP;
}
