/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pods of this node: who may send, and how a packet is put into a pod. */
#pragma once

#include "lib/net/ttl.h"
#include "lib/net/packet.h"

static __always_inline const struct endpoint *endpoint_of(const struct address *a)
{
	return bpf_map_lookup_elem(&endpoints, a);
}

/* Pods speak IP. ARP reaches the host's stack and no further. */
STAGE endpoint_check_protocol(struct packet *p)
{
	if (packet_is_ip(p))
		return NEXT;
	if (p->protocol == bpf_htons(ETH_P_ARP))
		return PASS;
	return drop(p, DROP_NOT_IP);
}

/*
 * A pod sends with its own addresses only; link-local IPv6 reaches the host's stack and no further. `sender` is
 * whose the source address is; with NEXT it is not NULL.
 */
STAGE endpoint_check_source(struct packet *p, const struct endpoint *sender)
{
	if (sender && sender->ifindex == p->skb->ifindex)
		return NEXT;
	if (p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->source) &&
	    address_stays_on_link(&p->destination))
		return PASS; /* neighbour discovery (RFC 4861), multicast listener reports */
	return drop(p, DROP_SPOOFED_SOURCE);
}

/* What the stack puts on a pod's device must be for that pod: a stale host route must not feed another one. */
STAGE endpoint_check_destination(struct packet *p)
{
	const struct endpoint *e;

	if (!packet_is_ip(p))
		return PASS;
	e = endpoint_of(&p->destination);
	if (e && e->ifindex == p->skb->ifindex)
		return NEXT;
	if (p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->destination))
		return PASS;
	return drop(p, DROP_INVALID_DESTINATION);
}

/* The way into the pod that owns an address; the stack's way if none does, or if that pod's packets go through it. */
static __always_inline void endpoint_route(struct route *route, const struct address *a)
{
	const struct endpoint *e = endpoint_of(a);

	route->kind = ROUTE_CLUSTER;
	if (!e || e->through_stack)
		return;
	route->kind = ROUTE_LOCAL;
	route->ifindex = e->ifindex;
	__builtin_memcpy(route->next_hop_mac, e->pod_mac, ETH_ALEN);
	__builtin_memcpy(route->uplink_mac, e->host_mac, ETH_ALEN);
}

/*
 * Delivers a packet into a pod: the only place that does. bpf_redirect_peer (Linux 5.10) skips the host's stack and a
 * second pass through the backlog.
 */
STAGE endpoint_redirect(struct packet *p, const struct route *route)
{
	__builtin_memcpy(p->eth->h_dest, route->next_hop_mac, ETH_ALEN);
	__builtin_memcpy(p->eth->h_source, route->uplink_mac, ETH_ALEN);
	ttl_decrement(p);
	p->action = bpf_redirect_peer(route->ifindex, 0);
	return REDIRECT;
}

/*
 * Puts the packet into a pod, past the host's stack and without a second pass through the backlog
 * (bpf_redirect_peer, Linux 5.10). Leaves to the stack what only that can do: options, and answering when no
 * hop is left.
 */
STAGE endpoint_deliver(struct packet *p, const struct route *route)
{
	if (unlikely(p->options || p->ttl <= 1) || route->ifindex == p->skb->ifindex)
		return PASS;
	return endpoint_redirect(p, route);
}
