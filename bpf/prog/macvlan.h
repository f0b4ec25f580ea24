/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parent of macvlan devices of pods, an uplink. Egress: from_macvlan, each frame that a pod sends, since the
 * devices are in mode vepa. Ingress: to_macvlan, frames of the wire to pods, and those that programs of this node
 * deliver. See docs/decisions/42-macvlan-at-the-parent.md.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/fwd/owner.h"
#include "lib/net/arp.h"
#include "prog/pod.h"
#include "prog/wire.h"

static __always_inline const struct macvlan_pod *macvlan_pod_of(__u32 parent, const __u8 *mac)
{
	struct macvlan_key key = {.parent = parent};

	__builtin_memcpy(key.mac, mac, ETH_ALEN);
	return bpf_map_lookup_elem(&macvlan_pods, &key);
}

/* Addresses the frame of this device to the node and has this device receive it. */
STAGE macvlan_to_node(struct packet *p)
{
	__u32 device = p->skb->ifindex;
	const struct uplink *uplink = bpf_map_lookup_elem(&uplinks, &device);

	if (!uplink)
		return drop(p, DROP_INTERNAL_ERROR);
	__builtin_memcpy(p->eth->h_dest, uplink->mac, ETH_ALEN);
	if (p->program == PROGRAM_TO_MACVLAN)
		return PASS;
	handled_set(p->skb);
	p->action = bpf_redirect(device, BPF_F_INGRESS);
	return REDIRECT;
}

/* Has the host end of a pod receive the frame: from_pod decides, and the kernel stack forwards. */
STAGE macvlan_to_host_end(struct packet *p, const struct macvlan_pod *pod)
{
	__builtin_memcpy(p->eth->h_dest, pod->host_mac, ETH_ALEN);
	p->action = bpf_redirect(pod->ifindex, BPF_F_INGRESS);
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

/* ARP of a pod. It is valid if it is true, whoever sent it: the kernel has no record of who sends replies. */
STAGE from_macvlan_arp(struct packet *p, const struct macvlan_pod *pod)
{
	const struct arp *arp = arp_of(p);
	struct address sender, target;

	if (!arp)
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
		return valid ? PASS : drop(p, DROP_SPOOFED_SOURCE);
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
STAGE from_macvlan_group(struct packet *p)
{
	if (!mac_is_group(p->eth->h_dest))
		return NEXT;
	if (!address_stays_on_link(&p->destination) || policy_selects(&p->source))
		return drop(p, DROP_INVALID_DESTINATION);
	return PASS;
}

/* Whether the route leads to a local pod with a macvlan device. */
static __always_inline bool route_is_macvlan(const struct route *route)
{
	return route->kind == ROUTE_LOCAL && route->resolved;
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
 * Whether the host end has to receive the packet, as it comes from another kind of device. Not if the destination is
 * a local pod with a macvlan device. Else if the pod sends to the host end, its router where the pool has none. Else
 * if it is in the cluster, but for single addresses by the link: other nodes, and pods that the external network knows.
 */
static __always_inline bool macvlan_needs_host_end(struct packet *p, const struct macvlan_pod *pod,
						   const struct flow_cache_entry *fc)
{
	if (config_kube_proxy || (fc->nat_checks && macvlan_may_translate(p, fc->nat_checks)))
		return true;
	if (route_is_macvlan(&fc->route))
		return false;
	if (mac_equals(p->eth->h_dest, pod->host_mac))
		return true;
	return fc->route.kind != ROUTE_UNKNOWN && !(fc->route.kind == ROUTE_REMOTE && route_of_host(&p->destination));
}

/*
 * Packets to local pods with macvlan devices and to addresses on the link go on at once. The host end receives the
 * others.
 */
STAGE from_macvlan_send(struct packet *p, const struct macvlan_pod *pod)
{
	struct flow_cache_entry *fc = 0;
	enum verdict v = from_pod_lookup(p, pod->ifindex, &fc);

	if (v != NEXT)
		return v == PASS ? macvlan_to_host_end(p, pod) : v;
	v = from_pod_check_error(p, NEXT);
	if (v != NEXT)
		return v;
	if (macvlan_needs_host_end(p, pod, fc))
		return macvlan_to_host_end(p, pod);
	v = policy_check(p, fc);
	if (v != NEXT)
		return v;
	return route_is_macvlan(&fc->route) ? endpoint_redirect(p, &fc->route) : PASS;
}

/* A frame with the MAC of a pod. */
STAGE from_macvlan_pod(struct packet *p, const struct macvlan_pod *pod)
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
		v = from_macvlan_group(p);
	return v == NEXT ? from_macvlan_send(p, pod) : v;
}

/* Whether the node answers ARP for the address: its own, or that of a local pod of a pool of other devices. */
static __always_inline bool macvlan_node_answers(const struct address *a)
{
	const struct endpoint *e = endpoint_of(a);

	return e ? e->underlay && !e->parent : macvlan_is_node(a);
}

/*
 * Any other frame must be the node's. The kernel has no record of who sends its ARP replies: they must be true.
 * Frames about neighbours to a local pod go there.
 */
STAGE from_macvlan_node(struct packet *p)
{
	__u32 device = p->skb->ifindex;
	const struct uplink *uplink = bpf_map_lookup_elem(&uplinks, &device);
	bool is_arp = p->skb->protocol == bpf_htons(ETH_P_ARP);
	const struct arp *arp = is_arp ? arp_of(p) : 0;
	__u64 owner = owner_of(p->skb);
	const struct macvlan_pod *pod;
	enum verdict v;
	struct address a;
	__u8 type = 0;

	if (is_arp && !arp)
		return drop(p, DROP_MALFORMED);
	if (owner != config_host_netns) {
		if (owner || !arp || !uplink || !mac_equals(p->eth->h_source, uplink->mac) ||
		    !mac_equals(arp->sender_mac, uplink->mac))
			return drop(p, DROP_SPOOFED_SOURCE);
		address_from_ipv4(&a, arp->sender);
		if (!macvlan_node_answers(&a))
			return drop(p, DROP_SPOOFED_SOURCE);
	}
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

SEC("tcx/egress")
int from_macvlan(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_MACVLAN};
	const struct macvlan_pod *pod;
	enum verdict v;
	bool known;

	if (handled_take(skb))
		return config_netkit ? TC_ACCEPT : TC_NEXT;
	if (skb->vlan_present)
		return TC_NEXT; /* of the node's VLAN device: a pod's tag is in the frame */
	known = macvlan_check_protocol(skb);
	if (!packet_has(&p, 0))
		return finish(&p, drop(&p, DROP_TRUNCATED));
	if (!known)
		return finish(&p, drop(&p, DROP_INTERNAL_ERROR));
	pod = macvlan_pod_of(skb->ifindex, p.eth->h_source);
	v = pod ? from_macvlan_pod(&p, pod) : from_macvlan_node(&p);
	return finish(&p, v);
}

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

/* Frames of the wire about a neighbour: a sender address of a local pod is forged. */
STAGE to_macvlan_arp(struct packet *p)
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
	return macvlan_to_neighbour(p, &a);
}

/* Neighbour discovery to a local pod. NEXT: something else. */
STAGE to_macvlan_nd(struct packet *p)
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
		const __be32 group = bpf_htonl(0xff000000);

		/* Unicast in a group frame is none, nor is what has more than the option with the MAC. */
		if ((p->destination.word[0] & group) != group || p->ip6->payload_len != bpf_htons(ND_LENGTH))
			return NEXT;
		return to_macvlan_announcement(p, ETH_HLEN + sizeof(*p->ip6) + ND_LENGTH);
	}
	nd_link_local(&own, p->eth->h_dest);
	if (address_equals(&p->destination, &own)) {
		p->action = TC_ACCEPT; /* to the pod's link-local address, which no table has */
		return REDIRECT;
	}
	if (type == ND_NEIGHBOUR_ADVERTISEMENT)
		a = p->destination;
	return macvlan_to_neighbour(p, &a);
}

/* Delivers a unicast packet of the wire to the pod that has its MAC, if that has its address. `device`: host end. */
STAGE to_macvlan_pod(struct packet *p, __u32 device)
{
	const struct endpoint *e = endpoint_of(&p->destination);
	enum verdict v;

	if (!e || e->ifindex != device)
		return drop(p, DROP_INVALID_DESTINATION);
	v = from_wire_deliver(p);
	if (v != PASS)
		return v;
	/* Allowed, with header options or its last hop: no router has to see it. */
	p->action = TC_ACCEPT;
	return REDIRECT;
}

SEC("tcx/ingress")
int to_macvlan(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_MACVLAN};
	const struct macvlan_pod *pod;
	__u32 receiver;
	bool group;
	enum verdict v;

	if (handled_take(skb))
		return TC_ACCEPT;
	if (!packet_has(&p, 0))
		return finish(&p, drop(&p, DROP_TRUNCATED));
	group = mac_is_group(p.eth->h_dest);
	pod = group ? 0 : macvlan_pod_of(skb->ifindex, p.eth->h_dest);
	receiver = pod ? pod->ifindex : 0;
	if (!group && !receiver)
		return TC_NEXT;
	if (skb->vlan_present)
		return receiver ? finish(&p, drop(&p, DROP_NOT_IP)) : TC_NEXT;
	if (skb->protocol == bpf_htons(ETH_P_ARP)) {
		v = to_macvlan_arp(&p);
	} else {
		v = packet_parse(&p);
		if (v == NEXT && packet_is_ip(&p) && p.protocol == bpf_htons(ETH_P_IPV6))
			v = to_macvlan_nd(&p);
	}
	if (v == NEXT && group) /* the verifier believes that packet_parse may move the packet */
		v = packet_has(&p, 0) ? macvlan_to_node(&p) : drop(&p, DROP_TRUNCATED);
	else if (v == NEXT)
		v = packet_is_ip(&p) ? to_macvlan_pod(&p, receiver) : drop(&p, DROP_NOT_IP);
	return finish(&p, v);
}
