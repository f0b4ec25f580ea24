/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ingress of the parent of macvlan devices of pods: frames of the wire, and frames that programs of this node
 * redirect.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/fwd/macvlan.h"
#include "lib/net/mld.h"
#include "prog/wire.h"

/*
 * An announcement of the wire: pods receive it, too, since they may know the MAC that the address had before. What
 * follows is cut off: no policy is asked.
 */
STAGE to_macvlan_announcement(struct packet *p, __u32 length)
{
	if (p->skb->len > length && bpf_skb_change_tail(p->skb, length, 0))
		return drop(p, DROP_INTERNAL_ERROR);
	return PASS;
}

/*
 * Whether a frame about a neighbour is for the pod with its MAC, whose host end is `receiver`; 0: for a group. Else a
 * host of the link, or a device that a pod has made beside its own, would tell one pod by the MAC of another.
 */
static __always_inline bool to_macvlan_is_for(const struct address *neighbour, __u32 receiver)
{
	const struct endpoint *e;

	if (!receiver)
		return true;
	e = endpoint_of(neighbour);
	return e && e->ifindex == receiver;
}

/* Frames of the wire about a neighbour: a sender address of a local pod is forged. */
STAGE to_macvlan_arp(struct packet *p, __u32 receiver)
{
	const struct arp *arp = arp_of(p);
	struct address a;

	if (!arp)
		return drop(p, DROP_MALFORMED);
	address_from_ipv4(&a, arp->sender);
	if (endpoint_of(&a))
		return drop(p, DROP_SPOOFED_SOURCE);
	if (mac_is_group(p->eth->h_dest) && arp->sender && arp->sender == arp->target)
		return to_macvlan_announcement(p, ETH_HLEN + sizeof(*arp));
	address_from_ipv4(&a, arp->target);
	if (!to_macvlan_is_for(&a, receiver))
		return drop(p, DROP_INVALID_DESTINATION);
	return macvlan_to_neighbour(p, &a);
}

/*
 * A router asks who listens to groups. Pods answer: a switch that follows the answers would else stop forwarding
 * solicitations for their addresses.
 */
STAGE to_macvlan_query(struct packet *p)
{
	__u32 length = mld_query_length(p);

	return length ? to_macvlan_announcement(p, ETH_HLEN + sizeof(struct ipv6hdr) + length) : NEXT;
}

/* Neighbour discovery to a local pod. NEXT: something else. */
STAGE to_macvlan_nd(struct packet *p, __u32 receiver)
{
	struct address a = {}, own;
	enum verdict v;
	__u8 type;

	v = nd_read(p, &type, &a);
	if (v != NEXT)
		return v;
	if (!type || p->ip6->hop_limit != ND_HOP_LIMIT)
		return NEXT;
	if (type != ND_NEIGHBOUR_ADVERTISEMENT && type != ND_NEIGHBOUR_SOLICITATION)
		return NEXT;
	if (endpoint_of(type == ND_NEIGHBOUR_SOLICITATION ? &p->source : &a))
		return drop(p, DROP_SPOOFED_SOURCE);
	if (type == ND_NEIGHBOUR_ADVERTISEMENT && mac_is_group(p->eth->h_dest)) {
		/* Unicast in a group frame is none, nor is what has more than the option with the MAC. */
		if (!address_is_ipv6_multicast(&p->destination) || p->ip6->payload_len != bpf_htons(ND_LENGTH))
			return NEXT;
		return to_macvlan_announcement(p, ETH_HLEN + sizeof(*p->ip6) + ND_LENGTH);
	}
	nd_link_local(&own, p->eth->h_dest);
	if (address_equals(&p->destination, &own)) {
		macvlan_hide_source(p);
		p->action = TC_ACCEPT; /* to the pod's link-local address, which no table has */
		return REDIRECT;
	}
	if (type == ND_NEIGHBOUR_ADVERTISEMENT)
		a = p->destination;
	if (!to_macvlan_is_for(&a, receiver))
		return drop(p, DROP_INVALID_DESTINATION);
	return macvlan_to_neighbour(p, &a);
}

/* A unicast packet of the wire, for the pod that has its MAC, if that has its address. `device`: host end. */
STAGE to_macvlan_pod(struct packet *p, __u32 device, struct flow_cache_entry **cached)
{
	const struct endpoint *e = endpoint_of(&p->destination);

	if (!e || e->ifindex != device)
		return drop(p, DROP_INVALID_DESTINATION);
	return from_wire_lookup(p, cached);
}

/* The flow cache entry of a packet of the wire to a pod, in a frame with the MAC of that pod; NULL if there is none. */
static __always_inline struct flow_cache_entry *to_macvlan_cached(struct packet *p)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_INGRESS);

	if (!fc || unlikely(!flow_cache_hit(fc, &p->source, &p->destination, p->skb->ifindex, now)))
		return 0;
	if (!route_is_macvlan(&fc->route) || fc->route.next_hop.word[0] != p->skb->ifindex)
		return 0;
	return mac_equals(fc->route.next_hop_mac, p->eth->h_dest) ? fc : 0;
}

/*
 * Which pod is the frame for? Not in the flow cache. NEXT: a packet to a local pod goes on, with its entry in `cached`.
 */
STAGE to_macvlan_check(struct packet *p, struct flow_cache_entry **cached)
{
	bool group = mac_is_group(p->eth->h_dest);
	const struct macvlan_pod *pod = group ? 0 : macvlan_pod_of(p->skb->ifindex, p->eth->h_dest);
	__u32 receiver = pod ? pod->ifindex : 0;
	enum verdict v;

	if (!group && !receiver)
		return PASS;
	if (p->skb->vlan_present)
		return receiver ? drop(p, DROP_NOT_IP) : PASS;
	if (p->skb->protocol == bpf_htons(ETH_P_ARP)) {
		v = to_macvlan_arp(p, receiver);
	} else {
		v = packet_parse(p);
		if (v == NEXT && packet_is_ip(p) && p->protocol == bpf_htons(ETH_P_IPV6))
			v = group && p->ip6->nexthdr == 0 ? to_macvlan_query(p) : to_macvlan_nd(p, receiver);
	}
	if (v != NEXT)
		return v;
	if (group) /* the verifier believes that packet_parse may move the packet */
		return packet_has(p, 0) ? macvlan_to_node(p) : drop(p, DROP_TRUNCATED);
	return packet_is_ip(p) ? to_macvlan_pod(p, receiver, cached) : drop(p, DROP_NOT_IP);
}

/*
 * A packet to a pod that is not delivered at once. It is allowed, with header options or its last hop: no router has to
 * see it. Or the kernel stack forwards all to the pod, or may translate it: nothing is decided yet, to_pod does that.
 */
STAGE to_macvlan_pass(struct packet *p, const struct flow_cache_entry *fc)
{
	if (!packet_has(p, 0))
		return drop(p, DROP_TRUNCATED);
	p->action = TC_ACCEPT;
	if (fc->route.kind == ROUTE_LOCAL && !config_kube_proxy) {
		macvlan_hide_source(p);
		return REDIRECT;
	}
	if (macvlan_to_node(p) != PASS || bpf_skb_change_type(p->skb, PACKET_HOST))
		return drop(p, DROP_INTERNAL_ERROR);
	return REDIRECT;
}

SEC("tcx/ingress")
int to_macvlan(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_MACVLAN};
	struct flow_cache_entry *fc = 0;
	enum verdict v = NEXT;

	if (handled_take(skb))
		return TC_ACCEPT;
	if (skb->pkt_type == PACKET_HOST) { /* the MAC is the device's own, not one of a pod */
		if (!skb->vlan_present)
			checked_set(skb); /* for from_wire, which hides the source MAC: a reply has to know it */
		return TC_NEXT;
	}
	if (packet_parse(&p) == NEXT && packet_is_ip(&p) && macvlan_is_plain(&p))
		fc = to_macvlan_cached(&p);
	if (unlikely(!fc)) {
		if (!packet_has(&p, 0))
			return finish(&p, drop(&p, DROP_TRUNCATED));
		p.ip4 = 0;
		v = to_macvlan_check(&p, &fc);
	}
	if (v == NEXT && fc) {
		v = from_wire_forward(&p, fc);
		if (v == PASS)
			v = to_macvlan_pass(&p, fc);
	}
	return finish(&p, v);
}
