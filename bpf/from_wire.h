/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ingress of an uplink: a packet arrives from outside the node. */
#pragma once

#include "config.h"
#include "lib/conntrack.h"
#include "lib/decision.h"
#include "lib/endpoint.h"
#include "lib/finish.h"
#include "lib/origin.h"
#include "lib/route.h"
#include "lib/session.h"
#include "lib/translate.h"

/* skb->pkt_type of a frame that is addressed to the device itself (linux/if_packet.h). */
#define PACKET_HOST 0

/* Which bits of a VLAN tag are the VLAN's number (IEEE 802.1Q, 9.6). */
#define VLAN_ID 0xfff

/* What translation has to do with packets to `receiver`, the pod here that has the destination; NULL if none has. */
static __always_inline __u32 from_wire_translated(const struct packet *p, const struct endpoint *receiver, bool world)
{
	__u32 how = (!config_ebpf_routing || config_stack_services ? TRANSLATE_STACK : 0) |
		    (p->program == PROGRAM_FROM_TUNNEL ? TRANSLATE_TUNNEL : 0);

	if (!config_services && !config_masquerade)
		return 0;
	if (!receiver) {
		if (address_stays_on_link(&p->destination))
			return 0;
		return how | TRANSLATE_NODE | TRANSLATE_OPENERS;
	}
	if (world && config_masquerade)
		return how | TRANSLATE_WORLD;
	/* What goes through the stack is translated behind it, by to_pod. */
	if (!config_services || !config_ebpf_routing || receiver->through_stack)
		return 0;
	return bpf_map_lookup_elem(&translated_pods, &p->destination) ? how | TRANSLATE_ANSWERS : 0;
}

/*
 * Straight into the pod. Beside kube-proxy, packets from the world stay with the stack: its rules drop answers to
 * connections that connection tracking has not seen begin.
 */
static __noinline void from_wire_way(struct decision *d, const struct packet *p)
{
	const struct endpoint *receiver = endpoint_of(&p->destination);
	bool world = receiver && (config_masquerade || config_stack_services) &&
		     route_copy(&p->source, &d->route) == ROUTE_UNKNOWN;

	endpoint_way(&d->route, &p->destination);
	if (!config_ebpf_routing || (config_stack_services && world))
		d->route.kind = ROUTE_CLUSTER;
	d->translated = from_wire_translated(p, receiver, world);
	if (policy_tracks())
		d->policed = policy_policed(&p->destination, &d->route);
}

/* Into the pod, if that is the way. */
STAGE from_wire_send(struct packet *p, struct decision *d)
{
	enum verdict v;

	if (d->route.kind != ROUTE_LOCAL)
		return PASS;
	v = conntrack_ask(p);
	if (v == NEXT)
		v = session_pass(p, d);
	return v == NEXT ? endpoint_deliver(p, &d->route) : v;
}

/* What is translated goes its new way, the rest on to where it is addressed. */
STAGE from_wire_forward(struct packet *p, struct decision *d)
{
	enum verdict v = NEXT;

	if ((config_services || config_masquerade) && d->translated)
		v = translate(p, PLACE_WIRE, d->translated);
	return v == NEXT ? from_wire_send(p, d) : v;
}

STAGE from_wire_deliver(struct packet *p)
{
	__u32 now = decision_generation();
	struct decision *d = decision_place(&p->source, &p->destination);

	if (!d)
		return PASS; /* cannot be: every index has its element */
	if (unlikely(!decision_holds(d, &p->source, &p->destination, p->skb->ifindex, now))) {
		if (!origin_may_be_wire(&p->source, &p->destination))
			return drop(p, DROP_INVALID_SOURCE);
		from_wire_way(d, p);
		decision_keep(d, &p->source, &p->destination, p->skb->ifindex, now);
	}
	return from_wire_forward(p, d);
}

/* How many priority tags a frame may have. */
#define PRIORITY_TAGS 2

/*
 * Takes priority tags off: they say VLAN 0, which is none, and the stack takes such a frame as one without a tag (IEEE 802.1Q, 6.9). False if it
 * has more of them than anybody sends.
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
	enum verdict v = PASS;

	if (unlikely(!from_wire_untag(skb)))
		return finish(&p, drop(&p, DROP_MALFORMED));
	/*
	 * What cannot be parsed is not for a pod, and the stack's to judge. So are frames for others, which a
	 * switch floods or mirrors and a promiscuous device brings, and frames for all: a router forwards neither.
	 */
	if (skb->pkt_type == PACKET_HOST && packet_parse(&p) == NEXT && packet_is_ip(&p))
		v = from_wire_deliver(&p);
	return finish(&p, v);
}
