/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ingress of the host's end of a pod's device: a packet leaves a pod. */
#pragma once

#include "config.h"
#include "lib/endpoint.h"
#include "lib/finish.h"
#include "lib/route.h"

/* A pod of this node · another node · everything else is the stack's: the node itself and the world. */
STAGE from_pod_route(struct packet *p)
{
	const struct route *r = route_of(&p->destination);
	const struct endpoint *e;

	if (!r)
		return PASS;
	if (r->kind == ROUTE_REMOTE)
		return route_to_wire(p, r);
	if (r->kind != ROUTE_LOCAL)
		return PASS;
	e = endpoint_of(&p->destination);
	return e ? endpoint_deliver(p, e) : PASS;
}

SEC("tcx/ingress")
int from_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_POD};
	enum verdict v = packet_parse(&p);

	if (v == NEXT)
		v = endpoint_check_source(&p);
	if (v == NEXT && config_ebpf_routing)
		v = from_pod_route(&p);
	return finish(&p, v);
}
