/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The egress of the parent of macvlan devices of pods, an uplink: each frame that a pod sends, since the devices are in
 * mode vepa, and what the node sends.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/fwd/limit.h"
#include "lib/fwd/macvlan.h"
#include "lib/fwd/owner.h"
#include "lib/net/mld.h"
#include "prog/pod.h"

/*
 * ARP of a pod. It is valid if it is true, whoever sent it: the kernel has no record of who sends replies. No policy is
 * asked, so it carries no other data than what fills a short frame.
 */
STAGE from_macvlan_arp(struct packet *p, const struct macvlan_pod *pod)
{
	const struct arp *arp = arp_of(p);
	struct address sender, target;

	if (!arp || p->skb->len > ARP_FRAME)
		return drop(p, DROP_MALFORMED);
	address_from_ipv4(&sender, arp->sender);
	address_from_ipv4(&target, arp->target);
	if (!mac_equals(arp->sender_mac, p->eth->h_source) || (arp->sender && !address_equals(&sender, &pod->ipv4)))
		return drop(p, DROP_SPOOFED_SOURCE);
	/* Announcements and probes for the pod's own address (RFC 5227). */
	return address_equals(&target, &pod->ipv4) ? PASS : macvlan_to_neighbour(p, &target);
}

/*
 * Neighbour discovery of a pod, for its own addresses, and reports of multicast listeners (RFC 3810), whose header
 * option comes first. NEXT: the source is the pod's address, and the packet is none of these.
 * Not inline: the stack of from_macvlan is full (Linux 6.1 adds up the frames of all callers).
 */
static __noinline enum verdict from_macvlan_ipv6(struct packet *p, const struct macvlan_pod *pod)
{
	struct address own, target = {};
	enum verdict v;
	__u8 type;
	bool valid;

	nd_link_local(&own, p->eth->h_source);
	valid = address_equals(&p->source, &own) || address_is_zero(&p->source);
	if (p->ip6->nexthdr == 0 && p->ip6->hop_limit == 1 && mac_is_group(p->eth->h_dest))
		return valid && mld_is_report(p) ? PASS : drop(p, DROP_SPOOFED_SOURCE);
	valid |= address_equals(&p->source, &pod->ipv6);
	v = nd_read(p, &type, &target);
	if (v != NEXT)
		return v;
	if (!type) {
		/* Receivers look for neighbour discovery behind extension headers too. */
		bool hidden = p->ip6->hop_limit == ND_HOP_LIMIT && p->ip6->nexthdr != PROTOCOL_ICMPV6 &&
			      p->ip6->nexthdr != PROTOCOL_TCP && p->ip6->nexthdr != PROTOCOL_UDP;

		return hidden || !address_equals(&p->source, &pod->ipv6) ? drop(p, DROP_SPOOFED_SOURCE) : NEXT;
	}
	/* No policy is asked: routers do not forward them, and they carry little other data. */
	if (p->ip6->hop_limit != ND_HOP_LIMIT || bpf_ntohs(p->ip6->payload_len) > ND_LENGTH)
		return drop(p, DROP_SPOOFED_SOURCE);
	switch (type) {
	case ND_ROUTER_SOLICITATION:
		if (!valid || !mac_is_group(p->eth->h_dest) || !address_stays_on_link(&p->destination))
			break;
		return PASS;
	case ND_NEIGHBOUR_SOLICITATION:
		if (!valid)
			break;
		if (address_equals(&target, &pod->ipv6))
			return PASS; /* duplicate address detection */
		v = macvlan_to_neighbour(p, &target);
		return v == NEXT ? PASS : v;
	case ND_NEIGHBOUR_ADVERTISEMENT:
		if (!valid || !(address_equals(&target, &own) || address_equals(&target, &pod->ipv6)))
			break;
		target = p->destination;
		v = macvlan_to_neighbour(p, &target);
		return v == NEXT ? PASS : v;
	}
	return drop(p, DROP_SPOOFED_SOURCE);
}

/* A frame to a group leaves by the wire only. Unicast packets in it would reach pods past their policies. */
STAGE from_macvlan_group(struct packet *p, const struct macvlan_pod *pod)
{
	if (!mac_is_group(p->eth->h_dest))
		return NEXT;
	if (!address_equals(&p->source, &pod->ipv4) && !address_equals(&p->source, &pod->ipv6))
		return drop(p, DROP_SPOOFED_SOURCE);
	if (!address_stays_on_link(&p->destination) || policy_selects(&p->source))
		return drop(p, DROP_INVALID_DESTINATION);
	return PASS;
}

/* Has the host end of a pod receive the frame: from_pod decides, and the kernel stack forwards. */
STAGE macvlan_to_host_end(struct packet *p, __u32 host_end, const __u8 *host_mac)
{
	__builtin_memcpy(p->eth->h_dest, host_mac, ETH_ALEN);
	p->action = bpf_redirect(host_end, BPF_F_INGRESS);
	return REDIRECT;
}

/*
 * Whether the packet may belong to a translated connection; nat_translate decides, at the host end. Not inline: the
 * stack of from_macvlan is full.
 */
static __noinline bool macvlan_may_translate(struct packet *p, __u32 checks)
{
	struct nat_state *state = nat_state_get();

	if (!state || !(checks & NAT_CHECK_SERVICE))
		return true;
	transport_parse(p, &state->transport);
	return state->transport.kind != TRANSPORT_PORTS || state->transport.in_fragments || nat_has_service(state);
}

/*
 * The route of what a macvlan pod sends. ROUTE_LOCAL: into a local pod with a macvlan device. ROUTE_UNKNOWN: to the
 * link, with the MAC that the pod resolved; external addresses, and single ones in the cluster: other nodes, and pods
 * that the external network knows. ROUTE_CLUSTER: the host end receives the packet, as it comes from another kind of
 * device.
 */
static __always_inline enum route_kind macvlan_route(const struct route *route, const struct address *destination)
{
	if (config_kube_proxy)
		return ROUTE_CLUSTER;
	if (route_is_macvlan(route) || route->kind == ROUTE_UNKNOWN)
		return route->kind;
	return route->kind == ROUTE_REMOTE && route_of_host(destination) ? ROUTE_UNKNOWN : ROUTE_CLUSTER;
}

/* Validates the source of what the pod sends, and finds the route. */
STAGE from_macvlan_lookup(struct packet *p, const struct macvlan_pod *pod, struct flow_cache_entry **cached)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_MACVLAN);
	const struct endpoint *sender = endpoint_of(&p->source);

	if (!sender || sender->ifindex != pod->ifindex)
		return drop(p, DROP_SPOOFED_SOURCE);
	if (!fc)
		return drop(p, DROP_INTERNAL_ERROR);
	*cached = fc;
	from_pod_route(fc, p, sender);
	fc->route.kind = macvlan_route(&fc->route, &p->destination);
	flow_cache_store(fc, &p->source, &p->destination, p->skb->ifindex, now);
	fc->sender.netns = pod->netns;
	fc->sender.host_end = pod->ifindex;
	__builtin_memcpy(fc->sender.mac, p->eth->h_source, ETH_ALEN);
	__builtin_memcpy(fc->sender.host_mac, pod->host_mac, ETH_ALEN);
	return NEXT;
}

/*
 * Packets to local pods with macvlan devices and to the link go on at once. The host end receives the others: it is
 * also the router of pools without one.
 */
STAGE from_macvlan_send(struct packet *p, struct flow_cache_entry *fc)
{
	const struct macvlan_sender *sender = &fc->sender;
	enum verdict v = from_pod_check_error(p, NEXT);

	if (v != NEXT)
		return v;
	if (fc->route.kind == ROUTE_CLUSTER ||
	    (fc->route.kind == ROUTE_UNKNOWN && mac_equals(p->eth->h_dest, sender->host_mac)) ||
	    (fc->nat_checks && macvlan_may_translate(p, fc->nat_checks)))
		return macvlan_to_host_end(p, sender->host_end, sender->host_mac);
	v = policy_check(p, fc);
	if (v != NEXT)
		return v;
	if (fc->route.kind == ROUTE_LOCAL)
		return endpoint_redirect(p, &fc->route);
	p->action = TC_ACCEPT; /* to_wire has nothing to do */
	return REDIRECT;
}

/* A frame with the MAC of a pod. */
STAGE from_macvlan_pod(struct packet *p, const struct macvlan_pod *pod, struct flow_cache_entry **cached)
{
	bool arp = p->skb->protocol == bpf_htons(ETH_P_ARP);
	__u64 owner = owner_of(p->skb);
	enum verdict v;

	if (owner != pod->netns && !(arp && !owner))
		return drop(p, DROP_SPOOFED_SOURCE);
	p->skb->mark = 0; /* the pod may have set it; rules of the node may read it */
	if (arp)
		return from_macvlan_arp(p, pod);
	v = packet_parse(p);
	if (v != NEXT)
		return v;
	if (!packet_is_ip(p))
		return drop(p, DROP_NOT_IP);
	if (p->protocol == bpf_htons(ETH_P_IPV6))
		v = from_macvlan_ipv6(p, pod);
	if (v == NEXT)
		v = from_macvlan_group(p, pod);
	if (v == NEXT)
		v = from_macvlan_lookup(p, pod, cached);
	return v;
}

/* Whether the node answers ARP for the address: its own, or that of a local pod of a pool of other devices. */
static __always_inline bool macvlan_node_answers(const struct address *a)
{
	const struct endpoint *e = endpoint_of(a);

	return e ? e->underlay && !e->parent : macvlan_is_node(a);
}

/*
 * Any other frame must be the node's. The kernel has no record of who sends its ARP replies: they must be true.
 * Frames about neighbours to a local pod go there. A frame of a VLAN device on this one belongs to another link. Its
 * tag proves nothing: a pod may set it (XDP_REDIRECT from a device that it has made).
 */
STAGE from_macvlan_node(struct packet *p)
{
	__u32 device = p->skb->ifindex;
	bool is_arp = p->skb->protocol == bpf_htons(ETH_P_ARP);
	const struct arp *arp = is_arp ? arp_of(p) : 0;
	__u64 owner = owner_of(p->skb);
	const struct macvlan_pod *pod;
	const struct uplink *uplink;
	enum verdict v;
	struct address a;
	__u8 type = 0;

	if (is_arp && !arp)
		return drop(p, DROP_MALFORMED);
	if (unlikely(owner != config_host_netns)) {
		uplink = bpf_map_lookup_elem(&uplinks, &device);
		if (owner || !arp || !uplink || !mac_equals(p->eth->h_source, uplink->mac) ||
		    !mac_equals(arp->sender_mac, uplink->mac))
			return drop(p, DROP_SPOOFED_SOURCE);
		address_from_ipv4(&a, arp->sender);
		if (!macvlan_node_answers(&a))
			return drop(p, DROP_SPOOFED_SOURCE);
	}
	if (p->skb->vlan_present)
		return PASS;
	if (arp) {
		address_from_ipv4(&a, arp->target);
	} else {
		pod = macvlan_pod_of(device, p->eth->h_dest);
		if (!pod || p->skb->protocol != bpf_htons(ETH_P_IPV6))
			return pod ? drop(p, DROP_INVALID_DESTINATION) : PASS;
		v = packet_parse(p);
		if (v == NEXT && packet_is_ip(p))
			v = nd_read(p, &type, &a);
		if (v != NEXT)
			return v;
		if (!type)
			return drop(p, DROP_INVALID_DESTINATION);
		a = p->destination;
	}
	if (!endpoint_of(&a))
		return PASS;
	return macvlan_to_neighbour(p, &a);
}

/* packet_check_protocol with a frame of its own: inline, clang truncates the end of the packet that it reads again. */
static __noinline bool macvlan_check_protocol(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb};

	return packet_check_protocol(&p) == NEXT;
}

/* The flow cache entry of what a pod sends, by its MAC and from its network namespace; NULL if there is none. */
static __always_inline struct flow_cache_entry *from_macvlan_cached(struct packet *p, __u64 owner)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_MACVLAN);

	if (!fc || unlikely(!flow_cache_hit(fc, &p->source, &p->destination, p->skb->ifindex, now)))
		return 0;
	if (!mac_equals(fc->sender.mac, p->eth->h_source) || owner != fc->sender.netns)
		return 0;
	p->skb->mark = 0; /* as in from_macvlan_pod */
	return fc;
}

/*
 * Whose frame is it? Not in the flow cache. NEXT: a packet of a pod goes on, with its new entry in `cached`; a frame
 * about a neighbour, without one, leaves by the wire.
 */
STAGE from_macvlan_check(struct packet *p, struct flow_cache_entry **cached)
{
	bool tagged = p->skb->vlan_present, known = tagged || macvlan_check_protocol(p->skb);
	const struct macvlan_pod *pod;

	if (tagged && checked_take(p->skb))
		return PASS;
	if (!packet_has(p, 0))
		return drop(p, DROP_TRUNCATED);
	if (!known)
		return drop(p, DROP_INTERNAL_ERROR);
	pod = tagged ? 0 : macvlan_pod_of(p->skb->ifindex, p->eth->h_source);
	p->ip4 = 0;
	return pod ? from_macvlan_pod(p, pod, cached) : from_macvlan_node(p);
}

SEC("tcx/egress")
int from_macvlan(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_MACVLAN};
	struct flow_cache_entry *fc = 0;
	enum verdict v = NEXT;
	__u64 owner;

	if (handled_take(skb)) {
		checked_set(skb);
		return config_netkit ? TC_ACCEPT : TC_NEXT;
	}
	if (packet_parse(&p) == NEXT && packet_is_ip(&p) && macvlan_is_plain(&p)) {
		owner = owner_of(skb);
		if (owner == config_host_netns)
			return TC_NEXT; /* most packets of the node: not about neighbours */
		fc = from_macvlan_cached(&p, owner);
	}
	limit_departure(skb);
	if (unlikely(!fc))
		v = from_macvlan_check(&p, &fc);
	if (v == NEXT && fc)
		v = from_macvlan_send(&p, fc);
	if (v != DROP && (v != REDIRECT || p.action == TC_ACCEPT))
		checked_set(skb);
	return finish(&p, v);
}
