/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ingress of an uplink: a packet arrives from outside the node. */
#pragma once

#include "config.h"
#include "lib/conntrack.h"
#include "lib/decision.h"
#include "lib/endpoint.h"
#include "lib/finish.h"
#include "lib/route.h"

/* skb->pkt_type of a frame that is addressed to the device itself (linux/if_packet.h). */
#define PACKET_HOST 0

/*
 * Straight into the pod. Packets from the world stay with the stack while that masquerades: connection
 * tracking must see both directions of a connection to tell a pod's reply from a connection of its own.
 */
static __always_inline void from_wire_way(struct route *way, const struct packet *p)
{
	endpoint_way(way, &p->destination);
	if (way->kind == ROUTE_LOCAL && config_masquerade && !route_of(&p->source))
		way->kind = ROUTE_UNKNOWN;
}

/* Into the pod, if that is the way. */
STAGE from_wire_send(struct packet *p, const struct route *way)
{
	enum verdict v;

	if (way->kind != ROUTE_LOCAL)
		return PASS;
	v = conntrack_ask(p);
	return v == NEXT ? endpoint_deliver(p, way) : v;
}

STAGE from_wire_deliver(struct packet *p)
{
	__u32 now = decision_generation();
	struct decision *d = decision_place(p);

	if (!d)
		return PASS; /* cannot be: every index has its element */
	if (unlikely(!decision_holds(d, p, now))) {
		from_wire_way(&d->route, p);
		decision_keep(d, p, now);
	}
	return from_wire_send(p, &d->route);
}

SEC("tcx/ingress")
int from_wire(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_WIRE};
	enum verdict v = PASS;

	/*
	 * What cannot be parsed is not for a pod, and the stack's to judge. So are frames for others, which a
	 * switch floods or mirrors and a promiscuous device brings, and frames for all: a router forwards neither.
	 */
	if (config_ebpf_routing && skb->pkt_type == PACKET_HOST && packet_parse(&p) == NEXT && packet_is_ip(&p))
		v = from_wire_deliver(&p);
	return finish(&p, v);
}
