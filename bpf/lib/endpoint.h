/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pods of this node: who may send, and how a packet is put into a pod. */
#pragma once

#include "hop.h"
#include "packet.h"

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
	return drop(p, DROP_WRONG_POD);
}

/* The way into the pod that owns an address; the stack's way if none does, or if that pod's packets go through it. */
static __always_inline void endpoint_way(struct route *way, const struct address *a)
{
	const struct endpoint *e = endpoint_of(a);

	way->kind = ROUTE_CLUSTER;
	if (!e || e->through_stack)
		return;
	way->kind = ROUTE_LOCAL;
	way->ifindex = e->ifindex;
	__builtin_memcpy(way->next_hop_mac, e->pod_mac, ETH_ALEN);
	__builtin_memcpy(way->uplink_mac, e->host_mac, ETH_ALEN);
}

/*
 * Puts the packet into a pod, past the host's stack and without a second pass through the backlog
 * (bpf_redirect_peer, Linux 5.10). Leaves to the stack what only that can do: options, and answering when no
 * hop is left.
 */
STAGE endpoint_deliver(struct packet *p, const struct route *way)
{
	if (unlikely(p->options || p->hops <= 1) || way->ifindex == p->skb->ifindex)
		return PASS;
	__builtin_memcpy(p->eth->h_dest, way->next_hop_mac, ETH_ALEN);
	__builtin_memcpy(p->eth->h_source, way->uplink_mac, ETH_ALEN);
	hop_take(p);
	p->action = bpf_redirect_peer(way->ifindex, 0);
	return REDIRECT;
}
