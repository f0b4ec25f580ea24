/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ingress of the host's end of a pod's device: a packet leaves a pod. */
#pragma once

#include "config.h"
#include "lib/conntrack.h"
#include "lib/decision.h"
#include "lib/endpoint.h"
#include "lib/finish.h"
#include "lib/route.h"
#include "lib/tunnel.h"

/*
 * A pod of this node · another node · everything else is the stack's: the node itself, the world, and all
 * that a pod sends whose packets go through the stack.
 */
static __always_inline void from_pod_way(struct route *way, const struct endpoint *sender,
					 const struct address *destination)
{
	const struct route *r;

	way->kind = ROUTE_CLUSTER;
	if (sender->through_stack)
		return;
	r = route_of(destination);
	if (!r)
		way->kind = ROUTE_UNKNOWN;
	else if (r->kind == ROUTE_LOCAL)
		endpoint_way(way, destination);
	else
		*way = *r;
}

/* Checks the source and finds the way, or remembers both from an earlier packet. */
STAGE from_pod_decide(struct packet *p, const struct route **way)
{
	__u32 now = decision_generation();
	struct decision *d = decision_place(p);
	const struct endpoint *sender;
	enum verdict v;

	if (!d)
		return PASS; /* cannot be: every index has its element */
	*way = &d->route;
	if (likely(decision_holds(d, p, now)))
		return NEXT;
	sender = endpoint_of(&p->source);
	v = endpoint_check_source(p, sender);
	if (v != NEXT)
		return v;
	from_pod_way(&d->route, sender, &p->destination);
	decision_keep(d, p, now);
	return NEXT;
}

STAGE from_pod_send(struct packet *p, const struct route *way)
{
	enum verdict v;

	if (way->kind != ROUTE_LOCAL && way->kind != ROUTE_REMOTE && way->kind != ROUTE_TUNNEL)
		return PASS;
	v = conntrack_ask(p);
	if (v != NEXT)
		return v;
	switch (way->kind) {
	case ROUTE_LOCAL:
		return endpoint_deliver(p, way);
	case ROUTE_REMOTE:
		return route_to_wire(p, way);
	default:
		return route_to_tunnel(p, way);
	}
}

SEC("tcx/ingress")
int from_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_POD};
	const struct route *way = 0;
	enum verdict v = packet_parse(&p);

	if (v == NEXT)
		v = endpoint_check_protocol(&p);
	if (!config_ebpf_routing) {
		if (v == NEXT)
			v = endpoint_check_source(&p, endpoint_of(&p.source));
		return finish(&p, v);
	}
	if (v == NEXT)
		v = from_pod_decide(&p, &way);
	if (v == NEXT)
		v = from_pod_send(&p, way);
	return finish(&p, v);
}
