/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Egress of an uplink: a packet leaves the node. Attached where the stack forwards what pods send, or answers as a backend. */
#pragma once

#include "config.h"
#include "lib/decision.h"
#include "lib/finish.h"
#include "lib/route.h"
#include "lib/translate.h"

/*
 * What translation has to do with packets that the stack sends: those of a pod to the world are masqueraded, and the node
 * itself answers for Services whose backend it is.
 */
static __noinline __u32 to_wire_translated(const struct packet *p, struct decision *d)
{
	if (route_copy(&p->source, &d->route) == ROUTE_LOCAL) {
		if (!config_masquerade || address_stays_on_link(&p->destination) ||
		    route_copy(&p->destination, &d->route) != ROUTE_UNKNOWN)
			return 0;
		return TRANSLATE_WORLD | TRANSLATE_MASQUERADE;
	}
	return config_services ? TRANSLATE_ANSWERS : 0;
}

STAGE to_wire_translate(struct packet *p)
{
	__u32 now = decision_generation(), where = p->skb->ifindex | SCOPE_EGRESS;
	struct decision *d = decision_place_egress(&p->source, &p->destination);

	if (!d)
		return PASS; /* cannot be: every index has its element */
	if (unlikely(!decision_holds(d, &p->source, &p->destination, where, now))) {
		d->translated = to_wire_translated(p, d);
		decision_keep(d, &p->source, &p->destination, where, now);
	}
	return d->translated ? translate(p, PLACE_TO_WIRE, d->translated) : NEXT;
}

SEC("tcx/egress")
int to_wire(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_WIRE};
	enum verdict v = NEXT;

	if (config_services || config_masquerade)
		v = packet_parse(&p);
	if (v == NEXT && packet_is_ip(&p))
		v = to_wire_translate(&p);
	return finish(&p, v);
}
