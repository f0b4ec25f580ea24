/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The uplink. Ingress: from_wire, packets from other nodes and external hosts. Egress: to_wire, packets that the
 * kernel stack sends; attached where it forwards packets of pods or has backends.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/fwd/endpoint.h"
#include "lib/fwd/flow_cache.h"
#include "lib/fwd/macvlan.h"
#include "lib/fwd/route.h"
#include "lib/fwd/source.h"
#include "lib/nat/kernel_ct.h"
#include "lib/nat/nat_rewrite.h"
#include "lib/policy/conntrack.h"

/* skb->pkt_type of a frame to the device's own address, and to another host's (linux/if_packet.h). */
#define PACKET_HOST 0
#define PACKET_OTHERHOST 3

/* VLAN id of a VLAN tag (IEEE 802.1Q, 9.6). */
#define VLAN_ID 0xfff

/* The NAT checks of packets to `receiver`, the local pod with the destination address, or NULL. */
static __always_inline __u32 from_wire_nat(const struct packet *p, const struct endpoint *receiver, bool external)
{
	__u32 checks = (!config_ebpf_routing || config_kube_proxy ? NAT_CHECK_STACK : 0) |
		       (packet_is_of_tunnel(p) ? NAT_CHECK_TUNNEL : 0);

	if (!config_services && !config_masquerade)
		return 0;
	if (!receiver) {
		if (address_stays_on_link(&p->destination))
			return 0;
		return checks | NAT_CHECK_NODE | NAT_CHECK_NEW;
	}
	if (external && config_masquerade && !receiver->underlay)
		return checks | NAT_CHECK_EXTERNAL;
	/* to_pod translates what passes the kernel stack. */
	if (!config_services || !config_ebpf_routing || receiver->through_stack)
		return 0;
	return bpf_map_lookup_elem(&nat_pods, &p->destination) ? checks | NAT_CHECK_REPLIES : 0;
}

/*
 * The route of packets from the wire. With kube-proxy, external packets go to the kernel stack: its rules drop
 * replies of connections whose start conntrack has not seen.
 */
static __noinline void from_wire_route(struct flow_cache_entry *fc, const struct packet *p)
{
	const struct endpoint *receiver = endpoint_of(&p->destination);
	bool external = receiver && (config_masquerade || config_kube_proxy) &&
			route_copy(&p->source, &fc->route) == ROUTE_UNKNOWN;

	endpoint_route(&fc->route, &p->destination);
	if (!config_ebpf_routing || (config_kube_proxy && external))
		fc->route.kind = ROUTE_CLUSTER;
	fc->nat_checks = from_wire_nat(p, receiver, external);
	if (policy_tracks())
		fc->enforce = policy_enforce(&p->destination, &fc->route);
}

/* Applies policies and delivers a packet to a local pod. */
STAGE from_wire_send(struct packet *p, struct flow_cache_entry *fc)
{
	enum verdict v;

	if (fc->route.kind != ROUTE_LOCAL)
		return PASS;
	v = kernel_ct_check(p);
	if (v == NEXT)
		v = policy_check(p, fc);
	return v == NEXT ? endpoint_deliver(p, &fc->route) : v;
}

/* Translates the packet, or forwards it unchanged. */
STAGE from_wire_forward(struct packet *p, struct flow_cache_entry *fc)
{
	enum verdict v = NEXT;

	if ((config_services || config_masquerade) && fc->nat_checks)
		v = nat_translate(p, HOOK_FROM_WIRE, fc->nat_checks);
	return v == NEXT ? from_wire_send(p, fc) : v;
}

/* Validates the source and finds the route, or takes both from the flow cache. */
STAGE from_wire_lookup(struct packet *p, struct flow_cache_entry **cached)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_INGRESS);

	if (!fc)
		return PASS; /* internal error */
	*cached = fc;
	if (likely(flow_cache_hit(fc, &p->source, &p->destination, p->skb->ifindex, now)))
		return NEXT;
	if (!source_valid_from_wire(&p->source, &p->destination)) {
		if (route_kind_of(&p->source) != ROUTE_ENCRYPTED)
			return drop(p, DROP_INVALID_SOURCE);
		return nd_is_of_neighbours(p->skb) ? PASS : drop(p, DROP_UNENCRYPTED);
	}
	from_wire_route(fc, p);
	flow_cache_store(fc, &p->source, &p->destination, p->skb->ifindex, now);
	return NEXT;
}

/*
 * A packet in a frame to a group, which the kernel stack may take if it is no TCP: plaintext of what has to be encrypted
 * is dropped here as well.
 */
STAGE from_wire_group(struct packet *p)
{
	if (route_kind_of(&p->source) != ROUTE_ENCRYPTED || source_valid_from_wire(&p->source, &p->destination))
		return PASS;
	return nd_is_of_neighbours(p->skb) ? PASS : drop(p, DROP_UNENCRYPTED);
}

/* Maximum priority tags of a frame. */
#define PRIORITY_TAGS 2

/*
 * Removes priority tags (VLAN 0), which the kernel stack ignores (IEEE 802.1Q, 6.9). Returns false if there are
 * too many.
 */
static __always_inline bool from_wire_untag(struct __sk_buff *skb)
{
	for (int i = 0; i <= PRIORITY_TAGS; i++) {
		if (likely(!skb->vlan_present || skb->vlan_tci & VLAN_ID))
			return true;
		if (i == PRIORITY_TAGS || bpf_skb_vlan_pop(skb))
			return false;
	}
	return false;
}

SEC("tcx/ingress")
int from_wire(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_WIRE};
	struct flow_cache_entry *fc = 0;
	enum verdict v = PASS;

	if (unlikely(!from_wire_untag(skb)))
		return finish(&p, drop(&p, DROP_MALFORMED));
	/*
	 * Frames to other hosts (flooded by a switch, mirrored, or on a promiscuous device) and broadcasts are not
	 * forwarded. They and malformed packets are left to the kernel stack.
	 */
	if ((skb->pkt_type == PACKET_HOST || (config_strict_encryption && skb->pkt_type != PACKET_OTHERHOST)) &&
	    packet_parse(&p) == NEXT && packet_is_ip(&p))
		v = skb->pkt_type == PACKET_HOST ? from_wire_lookup(&p, &fc) : from_wire_group(&p);
	if (v == NEXT && fc)
		v = from_wire_forward(&p, fc);
	if (config_macvlan && checked_take(skb) && (v == NEXT || v == PASS) && packet_has(&p, 0))
		macvlan_hide_source(&p); /* of a parent: its pods may listen */
	return finish(&p, v);
}

/*
 * The NAT checks of packets that the kernel stack sends: masquerading of pods' packets to external addresses, and
 * replies of backends on the node.
 */
static __noinline __u32 to_wire_nat(const struct packet *p, struct flow_cache_entry *fc)
{
	if (route_copy(&p->source, &fc->route) == ROUTE_LOCAL) {
		const struct endpoint *sender = endpoint_of(&p->source);

		if (!config_masquerade || (sender && sender->underlay) || address_stays_on_link(&p->destination) ||
		    route_copy(&p->destination, &fc->route) != ROUTE_UNKNOWN)
			return 0;
		return NAT_CHECK_EXTERNAL | NAT_CHECK_MASQUERADE;
	}
	return config_services ? NAT_CHECK_REPLIES : 0;
}

/*
 * Whether a packet that has to be encrypted would leave in plaintext: to a pod of another node, or of a local pod to
 * another node. The stack's routes to these lead to the VXLAN device, but are gone with it, and other programs may
 * have made routes that the kernel prefers. Nodes reach each other by the wire.
 */
static __noinline bool to_wire_in_plaintext(const struct packet *p)
{
	return config_strict_encryption && route_kind_of(&p->destination) == ROUTE_ENCRYPTED &&
	       (!route_of_host(&p->destination) || route_kind_of(&p->source) == ROUTE_LOCAL);
}

STAGE to_wire_translate(struct packet *p)
{
	__u32 now = flow_cache_generation(), where = p->skb->ifindex | SCOPE_EGRESS;
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_EGRESS);

	if (!fc)
		return PASS; /* internal error */
	if (unlikely(!flow_cache_hit(fc, &p->source, &p->destination, where, now))) {
		if (to_wire_in_plaintext(p)) /* pods with macvlan devices find each other's MACs in plaintext */
			return nd_is_of_neighbours(p->skb) ? NEXT : drop(p, DROP_UNENCRYPTED);
		fc->nat_checks = to_wire_nat(p, fc);
		flow_cache_store(fc, &p->source, &p->destination, where, now);
	}
	return fc->nat_checks ? nat_translate(p, HOOK_TO_WIRE, fc->nat_checks) : NEXT;
}

SEC("tcx/egress")
int to_wire(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_WIRE};
	enum verdict v = NEXT;

	if (handled_take(skb)) {
		if (config_macvlan)
			checked_set(skb);
		return TC_NEXT;
	}
	if (config_services || config_masquerade || config_strict_encryption)
		v = packet_parse(&p);
	if (v == NEXT && packet_is_ip(&p))
		v = to_wire_translate(&p);
	return finish(&p, v);
}
