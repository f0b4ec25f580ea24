/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames at the parent of macvlan devices of pods: whose they are, and who gets them.
 * See docs/decisions/42-macvlan-at-the-parent.md.
 */
#pragma once

#include "config.h"
#include "lib/fwd/endpoint.h"
#include "lib/fwd/route.h"
#include "lib/net/arp.h"

static __always_inline const struct macvlan_pod *macvlan_pod_of(__u32 parent, const __u8 *mac)
{
	struct macvlan_key key = {.parent = parent};

	__builtin_memcpy(key.mac, mac, ETH_ALEN);
	return bpf_map_lookup_elem(&macvlan_pods, &key);
}

/*
 * Hides the source MAC of a packet to the node. A macvlan device in mode source, which any pod with NET_ADMIN can add
 * to the parent, takes all frames with the source MACs that it lists, for example the router's. No pod knows this MAC,
 * and the kernel stack does not read it for IP and ARP.
 */
static __always_inline void macvlan_hide_source(struct packet *p)
{
	__u64 source = config_macvlan_source;

	if (p->skb->protocol == bpf_htons(ETH_P_IP) || p->skb->protocol == bpf_htons(ETH_P_IPV6) ||
	    p->skb->protocol == bpf_htons(ETH_P_ARP))
		__builtin_memcpy(p->eth->h_source, &source, ETH_ALEN);
}

/* Addresses the frame of this device to the node and has this device receive it. */
STAGE macvlan_to_node(struct packet *p)
{
	__u32 device = p->skb->ifindex;
	const struct uplink *uplink = bpf_map_lookup_elem(&uplinks, &device);

	if (!uplink)
		return drop(p, DROP_INTERNAL_ERROR);
	__builtin_memcpy(p->eth->h_dest, uplink->mac, ETH_ALEN);
	macvlan_hide_source(p);
	if (p->program == PROGRAM_TO_MACVLAN)
		return PASS;
	handled_set(p->skb);
	p->action = bpf_redirect(device, BPF_F_INGRESS);
	return REDIRECT;
}

/* Whether the node itself has the address. */
static __always_inline bool macvlan_is_node(const struct address *a)
{
	const struct route *r = route_of_host(a);

	return r && r->kind == ROUTE_CLUSTER;
}

/*
 * Sends a frame about a neighbour (ARP, neighbour discovery) to the local pod that has the address, or to the node, as
 * a unicast frame. NEXT: neither has it.
 */
STAGE macvlan_to_neighbour(struct packet *p, const struct address *neighbour)
{
	const struct endpoint *e = endpoint_of(neighbour);

	if (e && e->parent) {
		__builtin_memcpy(p->eth->h_dest, e->pod_mac, ETH_ALEN);
		__builtin_memcpy(p->eth->h_source, e->host_mac, ETH_ALEN);
		return endpoint_redirect_macvlan(p, e->parent);
	}
	return e || macvlan_is_node(neighbour) ? macvlan_to_node(p) : NEXT;
}

/* Whether the route leads to a local pod with a macvlan device. */
static __always_inline bool route_is_macvlan(const struct route *route)
{
	return route->kind == ROUTE_LOCAL && route->resolved;
}

/*
 * Whether an IP packet is neither neighbour discovery nor in a frame for a group, and the kernel has its protocol right:
 * what from_macvlan and to_macvlan have to look at is in the flow cache.
 */
static __always_inline bool macvlan_is_plain(const struct packet *p)
{
	if (p->eth->h_proto != p->skb->protocol || mac_is_group(p->eth->h_dest))
		return false;
	return p->protocol == bpf_htons(ETH_P_IP) || p->ip6->nexthdr == PROTOCOL_TCP || p->ip6->nexthdr == PROTOCOL_UDP;
}
