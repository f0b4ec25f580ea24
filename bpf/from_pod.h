/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ingress of the host's end of a pod's device: a packet leaves a pod. */
#pragma once

#include "config.h"
#include "lib/conntrack.h"
#include "lib/decision.h"
#include "lib/endpoint.h"
#include "lib/finish.h"
#include "lib/forged_error.h"
#include "lib/route.h"
#include "lib/session.h"
#include "lib/translate.h"
#include "lib/tunnel.h"

/*
 * What translation has to do with packets from a pod. What goes to pods and nodes of the cluster goes as it is, unless it
 * answers; what goes anywhere else may be for a Service, or for the world. Beside kube-proxy the stack must see both, and
 * to_wire masquerades.
 */
static __always_inline __u32 from_pod_translated(const struct packet *p, const struct endpoint *sender,
						 enum route_kind kind)
{
	bool stack = !config_ebpf_routing || sender->through_stack;
	__u32 how = stack ? TRANSLATE_STACK : 0;

	if (!config_services && (!config_masquerade || config_stack_services || stack || kind))
		return 0;
	/* Services at loopback addresses are for the node's own sockets. */
	if (config_stack_services || address_stays_on_link(&p->destination) || address_is_loopback(&p->destination))
		return 0;
	if (kind != ROUTE_UNKNOWN && kind != ROUTE_CLUSTER)
		return bpf_map_lookup_elem(&translated_pods, &p->source) ? how | TRANSLATE_ANSWERS : 0;
	if (config_masquerade && !stack)
		how |= TRANSLATE_MASQUERADE;
	if (!kind)
		return how | TRANSLATE_OPENERS | TRANSLATE_WORLD;
	/* Most of what is for the node itself is for no Service, and the pod is listed before it takes part in a connection. */
	return how | TRANSLATE_OPENERS | (bpf_map_lookup_elem(&translated_pods, &p->source) ? 0 : TRANSLATE_FRESH);
}

/*
 * Whom policies and flows ask about packets between two pods or of one. What stays on the link of IPv6 is how neighbours find
 * each other, and a pod may reach itself.
 */
static __always_inline __u32 from_pod_policed(const struct packet *p, const struct route *way)
{
	__u32 policed = config_flows == FLOWS_ALL ? POLICED_OBSERVED : 0;

	if (p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->destination))
		return 0;
	if (policy_governs(&p->source))
		policed |= POLICED_EGRESS;
	if (way->kind != ROUTE_LOCAL)
		return policed;
	if (way->ifindex == p->skb->ifindex)
		return 0;
	return policy_governs(&p->destination) ? policed | POLICED_INGRESS : policed;
}

/*
 * A pod of this node · another node · everything else is the stack's, unless it is translated: the node itself, the
 * world, and all that a pod sends whose packets go through the stack.
 */
static __noinline void from_pod_way(struct decision *d, const struct packet *p, const struct endpoint *sender)
{
	enum route_kind kind = route_copy(&p->destination, &d->route);

	d->translated = from_pod_translated(p, sender, kind);
	d->route.kind = kind;
	if (!config_ebpf_routing || sender->through_stack)
		d->route.kind = ROUTE_CLUSTER;
	else if (kind == ROUTE_LOCAL)
		endpoint_way(&d->route, &p->destination);
	if (!policy_tracks())
		return;
	d->policed = from_pod_policed(p, &d->route);
	if (d->translated)
		d->translated |= (d->policed & ~POLICED_INGRESS) << TRANSLATE_POLICED;
}

/* Who gets ICMP errors believes them: the host's stack, and pods. So none of a pod may be forged. `otherwise` is the verdict if it is not. */
STAGE from_pod_check_error(struct packet *p, enum verdict otherwise)
{
	__u8 protocol = p->protocol == bpf_htons(ETH_P_IP) ? p->ip4->protocol : p->ip6->nexthdr;
	int reason;

	if (likely(protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP))
		return otherwise;
	reason = forged_error(p->skb);
	return reason > 0 ? drop(p, reason) : otherwise;
}

static __always_inline bool from_pod_goes_straight(const struct route *way)
{
	return way->kind == ROUTE_LOCAL || way->kind == ROUTE_REMOTE || way->kind == ROUTE_TUNNEL;
}

/* Checks the source and finds the way, or remembers both from an earlier packet. */
STAGE from_pod_decide(struct packet *p, struct decision **decision)
{
	__u32 now = decision_generation();
	struct decision *d = decision_place(&p->source, &p->destination);
	const struct endpoint *sender;
	enum verdict v;

	if (!d)
		return PASS; /* cannot be: every index has its element */
	*decision = d;
	if (likely(decision_holds(d, &p->source, &p->destination, p->skb->ifindex, now)))
		return NEXT;
	sender = endpoint_of(&p->source);
	v = endpoint_check_source(p, sender);
	if (v != NEXT)
		return v == PASS ? from_pod_check_error(p, PASS) : v;
	from_pod_way(d, p, sender);
	decision_keep(d, &p->source, &p->destination, p->skb->ifindex, now);
	return NEXT;
}

STAGE from_pod_send(struct packet *p, const struct route *way)
{
	enum verdict v;

	if (!from_pod_goes_straight(way))
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
	enum verdict v = packet_parse(&p);
	struct decision *d = 0;

	if (v == NEXT)
		v = endpoint_check_protocol(&p);
	if (v == NEXT)
		v = from_pod_decide(&p, &d);
	if (v == NEXT)
		v = from_pod_check_error(&p, NEXT);
	if (v == NEXT && (config_services || config_masquerade) && unlikely(d->translated))
		v = translate(&p, PLACE_POD, d->translated);
	if (v == NEXT)
		v = session_pass(&p, d);
	if (v == NEXT)
		v = from_pod_send(&p, &d->route);
	return finish(&p, v);
}
