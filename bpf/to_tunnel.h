/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Egress of the VXLAN device: the host's stack sends to pods and addresses of another node. */
#pragma once

#include "config.h"
#include "lib/decision.h"
#include "lib/finish.h"
#include "lib/route.h"
#include "lib/translate.h"
#include "lib/tunnel.h"

/*
 * The device asks nobody for link-layer addresses: the stack puts the device's own one into both places. What
 * from_pod sends is addressed already.
 */
static __always_inline bool to_tunnel_from_stack(const struct packet *p)
{
	const __u16 *to = (__u16 *)p->eth->h_dest, *from = (__u16 *)p->eth->h_source;

	return !((to[0] ^ from[0]) | (to[1] ^ from[1]) | (to[2] ^ from[2]));
}

/* The node itself answers for Services whose backend it is, as in to_wire_translated; pods' answers have been translated. */
STAGE to_tunnel_translate(struct packet *p)
{
	__u32 now = decision_generation(), where = p->skb->ifindex | SCOPE_EGRESS;
	struct decision *d = decision_place_egress(&p->source, &p->destination);

	if (!d)
		return PASS; /* cannot be: every index has its element */
	if (unlikely(!decision_holds(d, &p->source, &p->destination, where, now))) {
		d->translated = route_copy(&p->source, &d->route) == ROUTE_LOCAL ? 0 : TRANSLATE_ANSWERS;
		decision_keep(d, &p->source, &p->destination, where, now);
	}
	return d->translated ? translate(p, PLACE_TO_WIRE, TRANSLATE_ANSWERS) : NEXT;
}

/* Without an end to go to, the device drops the packet. */
STAGE to_tunnel_enter(struct packet *p)
{
	const struct route *r;

	if (!packet_has(p, 0))
		return drop(p, DROP_TRUNCATED); /* cannot be: it was parsed */
	r = route_of(&p->destination);
	if (r && r->kind == ROUTE_TUNNEL)
		tunnel_enter(p, r);
	return PASS;
}

SEC("tcx/egress")
int to_tunnel(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_TUNNEL};
	enum verdict v = packet_parse(&p);

	if (v == NEXT && (!packet_is_ip(&p) || !to_tunnel_from_stack(&p)))
		v = PASS;
	if (v == NEXT && config_services)
		v = to_tunnel_translate(&p) == DROP ? DROP : NEXT;
	if (v == NEXT)
		v = to_tunnel_enter(&p);
	return finish(&p, v);
}
