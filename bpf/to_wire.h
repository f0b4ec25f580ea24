/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Egress of an uplink: a packet leaves the node. */
#pragma once

#include "config.h"
#include "lib/finish.h"
#include "lib/route.h"

/*
 * A pod's address means nothing to the world, so a packet that carries one there is lost at best. It happens
 * when the masquerading rules are gone (somebody flushed the ruleset), and when connection tracking calls a
 * packet invalid and NAT therefore leaves it alone.
 */
STAGE to_wire_check_masqueraded(struct packet *p)
{
	const struct route *r;

	if (!packet_is_ip(p))
		return PASS;
	r = route_of(&p->source);
	if (!r || r->kind != ROUTE_LOCAL || route_of(&p->destination) || address_stays_on_link(&p->destination))
		return PASS;
	return drop(p, DROP_UNMASQUERADED);
}

SEC("tcx/egress")
int to_wire(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_WIRE};
	enum verdict v = NEXT;

	if (!config_masquerade || skb->mark & MARK_REPLY)
		v = PASS;
	if (v == NEXT)
		v = packet_parse(&p);
	if (v == NEXT)
		v = to_wire_check_masqueraded(&p);
	return finish(&p, v);
}
