/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Local pods: source and destination checks, and delivery into a pod. */
#pragma once

#include "lib/fwd/handled.h"
#include "lib/net/packet.h"
#include "lib/net/ttl.h"

static __always_inline const struct endpoint *endpoint_of(const struct address *a)
{
	return bpf_map_lookup_elem(&endpoints, a);
}

/* Pods may send IP. ARP goes to the kernel stack. */
STAGE endpoint_check_protocol(struct packet *p)
{
	if (packet_is_ip(p))
		return NEXT;
	if (p->protocol == bpf_htons(ETH_P_ARP))
		return PASS;
	return drop(p, DROP_NOT_IP);
}

/*
 * A pod may send with its own addresses only. Link-local IPv6 goes to the kernel stack. `sender` is the endpoint
 * of the source address, or NULL; with NEXT it is not NULL. `device` is the host end of the pod that sends.
 */
STAGE endpoint_check_source(struct packet *p, const struct endpoint *sender, __u32 device)
{
	if (sender && sender->ifindex == device)
		return NEXT;
	if (p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->source) &&
	    address_stays_on_link(&p->destination))
		return PASS; /* neighbour discovery (RFC 4861), multicast listener reports */
	return drop(p, DROP_SPOOFED_SOURCE);
}

/*
 * The kernel stack may deliver only packets that are addressed to this pod: a stale host route must not reach
 * another one. With NEXT, `parent` is the device that the pod's macvlan device is on; 0: another kind of device.
 */
STAGE endpoint_check_destination(struct packet *p, __u32 *parent)
{
	const struct endpoint *e;

	if (!packet_is_ip(p))
		return PASS;
	e = endpoint_of(&p->destination);
	if (e && e->ifindex == p->skb->ifindex) {
		*parent = e->parent;
		return NEXT;
	}
	if (p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->destination))
		return PASS;
	return drop(p, DROP_INVALID_DESTINATION);
}

/* The route into a local pod. */
static __always_inline void endpoint_set_route(struct route *route, const struct endpoint *e)
{
	route->kind = ROUTE_LOCAL;
	route->ifindex = e->ifindex;
	__builtin_memcpy(route->next_hop_mac, e->pod_mac, ETH_ALEN);
	__builtin_memcpy(route->uplink_mac, e->host_mac, ETH_ALEN);
	route->resolved = e->parent != 0;
	route->next_hop.word[0] = e->parent;
	route->mtu = e->limited_ingress;
}

/*
 * The route into the local pod that has an address; ROUTE_CLUSTER (kernel stack) if there is none, or with
 * through_stack.
 */
static __always_inline void endpoint_route(struct route *route, const struct address *a)
{
	const struct endpoint *e = endpoint_of(a);

	route->kind = ROUTE_CLUSTER;
	if (!e || e->through_stack)
		return;
	endpoint_set_route(route, e);
}

/*
 * Delivers a frame with a pod's MAC to the pod's macvlan device: the parent receives it. to_macvlan lets it pass, as
 * it has been evaluated.
 */
STAGE endpoint_redirect_macvlan(struct packet *p, __u32 parent)
{
	bool here = p->program == PROGRAM_FROM_WIRE || p->program == PROGRAM_TO_MACVLAN;

	p->action = TC_ACCEPT;
	if (here && p->skb->ifindex == parent)
		return REDIRECT; /* the parent is receiving it */
	handled_set(p->skb);
	p->action = bpf_redirect(parent, BPF_F_INGRESS);
	return REDIRECT;
}

/*
 * Delivers a packet into a pod; nothing else does. bpf_redirect_peer (Linux 5.10) skips the kernel stack and the
 * backlog queue. The kernel drops what it redirects while a pod sends (skb_do_redirect): such a packet passes the
 * egress of the receiver's host end, as does each to a pod with limited_ingress.
 */
STAGE endpoint_redirect(struct packet *p, const struct route *route)
{
	packet_set_macs(p->eth, route);
	if (config_macvlan && (p->program == PROGRAM_FROM_MACVLAN || p->program == PROGRAM_TO_MACVLAN))
		return endpoint_redirect_macvlan(p, route->next_hop.word[0]); /* of one link: not forwarded */
	ttl_decrement(p);
	p->local = true;
	if (config_macvlan && route->resolved)
		return endpoint_redirect_macvlan(p, route->next_hop.word[0]);
	if (likely(skb_is_received(p->skb) && !route->mtu)) {
		p->action = bpf_redirect_peer(route->ifindex, 0);
		return REDIRECT;
	}
	if (config_to_pod)
		handled_set(p->skb);
	p->action = bpf_redirect(route->ifindex, 0);
	return REDIRECT;
}

/* Delivers a packet, unless the kernel stack has to handle it: options, and TTL 1. */
STAGE endpoint_deliver(struct packet *p, const struct route *route)
{
	if (unlikely(p->options || p->ttl <= 1) || route->ifindex == p->skb->ifindex)
		return PASS;
	return endpoint_redirect(p, route);
}
