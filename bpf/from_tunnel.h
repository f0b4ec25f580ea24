/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ingress of the VXLAN device: what another node sent through a tunnel, without what was around it. */
#pragma once

#include "from_wire.h"
#include "lib/tunnel.h"

/*
 * Who can reach the VXLAN port can have packets come out here that no router would bring, with any source. So
 * only nodes of the cluster are listened to, and only for themselves, which is asked once for all packets between two addresses.
 */
STAGE from_tunnel_decide(struct packet *p, struct decision **decision)
{
	__u32 now = decision_generation();
	struct decision *d = decision_place(&p->source, &p->destination);
	struct tunnel_ends ends;
	enum drop_reason objection;

	if (!d)
		return PASS; /* cannot be: every index has its element */
	*decision = d;
	if (!tunnel_ends_of(p, &ends))
		return drop(p, DROP_UNKNOWN_TUNNEL_PEER);
	if (likely(decision_holds(d, &p->source, &p->destination, p->skb->ifindex, now) &&
		   address_equals(&d->route.next_hop, &ends.peer) && d->expires == tunnel_end_number(&ends.here)))
		return NEXT;
	objection = tunnel_objection(&ends, &p->source);
	if (objection)
		return drop(p, objection);
	from_wire_way(d, p);
	d->route.next_hop = ends.peer;
	d->expires = tunnel_end_number(&ends.here);
	decision_keep(d, &p->source, &p->destination, p->skb->ifindex, now);
	return NEXT;
}

SEC("tcx/ingress")
int from_tunnel(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_TUNNEL};
	enum verdict v = packet_parse(&p);
	struct decision *d = 0;

	if (v == NEXT && !packet_is_ip(&p))
		v = drop(&p, DROP_NOT_IP);
	if (v == NEXT)
		v = from_tunnel_decide(&p, &d);
	if (v == NEXT)
		v = skb->pkt_type == PACKET_HOST ? from_wire_forward(&p, d) : PASS;
	return finish(&p, v);
}
