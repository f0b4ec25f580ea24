/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ingress of an uplink: a packet arrives from outside the node. */
#pragma once

#include "config.h"
#include "lib/endpoint.h"
#include "lib/finish.h"
#include "lib/route.h"

/* skb->pkt_type of a frame that is addressed to the device itself (linux/if_packet.h). */
#define PACKET_HOST 0

/*
 * Straight into the pod. Packets from the world stay with the stack while that masquerades: connection
 * tracking must see both directions of a connection to tell a pod's reply from a connection of its own.
 */
STAGE from_wire_deliver(struct packet *p)
{
	const struct endpoint *e;

	if (!packet_is_ip(p))
		return PASS;
	e = endpoint_of(&p->destination);
	if (!e || (config_masquerade && !route_of(&p->source)))
		return PASS;
	return endpoint_deliver(p, e);
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
	if (config_ebpf_routing && skb->pkt_type == PACKET_HOST && packet_parse(&p) == NEXT)
		v = from_wire_deliver(&p);
	return finish(&p, v);
}
