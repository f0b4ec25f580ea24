/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Egress of the host's end of a pod's device: the host's stack delivers to a pod. Redirected packets do not come here. */
#pragma once

#include "config.h"
#include "lib/decision.h"
#include "lib/endpoint.h"
#include "lib/finish.h"
#include "lib/session.h"
#include "lib/translate.h"

/*
 * Answers of Services that came through the stack: of backends that are the node itself, and all to pods whose packets
 * go through it. Only here may they get the Service's address, which the stack might not take from outside. They are judged
 * with it, as their connection says how the pod knows them; `d`, which may be NULL, says by whom.
 */
STAGE to_pod_translate(struct packet *p, const struct decision *d)
{
	__u32 policed = d ? d->policed : 0;

	if (!packet_is_ip(p) || !bpf_map_lookup_elem(&translated_pods, &p->destination))
		return NEXT;
	return translate(p, PLACE_TO_POD, TRANSLATE_ANSWERS | policed << TRANSLATE_POLICED);
}

/*
 * Who asks about packets that the stack delivers. What stays on the link of IPv6 is how neighbours find each other. What a
 * pod of this node sends is counted where it comes from.
 */
static __noinline void to_pod_decide(struct decision *d, const struct packet *p)
{
	bool on_link = p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->source);

	d->policed = config_flows == FLOWS_ALL ? POLICED_OBSERVED : 0;
	if (policy_governs(&p->destination))
		d->policed |= POLICED_INGRESS;
	if (on_link)
		d->policed = 0;
	if (policy_governs(&p->source) || (config_flows == FLOWS_ALL && endpoint_of(&p->source)))
		d->policed |= POLICED_ELSEWHERE;
}

/* Finds out who asks about the packet, or remembers it from an earlier one. */
STAGE to_pod_find(struct packet *p, struct decision **decision)
{
	__u32 now = decision_generation(), where = p->skb->ifindex | SCOPE_EGRESS, device = p->skb->ingress_ifindex;
	struct decision *d;

	if (!policy_tracks() || !packet_is_ip(p))
		return NEXT;
	d = decision_place_egress(&p->source, &p->destination);
	if (!d)
		return drop(p, DROP_POLICY_CLOSED); /* cannot be: every index has its element */
	if (unlikely(!decision_holds(d, &p->source, &p->destination, where, now) || d->expires != device)) {
		if (!origin_may_be_device(&p->source, &p->destination, device))
			return drop(p, DROP_INVALID_SOURCE);
		decision_keep(d, &p->source, &p->destination, where, now);
		d->expires = device;
		to_pod_decide(d, p);
	}
	*decision = d;
	return NEXT;
}

/* What is not translated. */
STAGE to_pod_judge(struct packet *p, struct decision *d)
{
	return d ? session_pass(p, d) : NEXT;
}

SEC("tcx/egress")
int to_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_POD};
	enum verdict v = packet_parse(&p);
	struct decision *d = 0;

	if (v == NEXT)
		v = endpoint_check_destination(&p);
	if (v == NEXT)
		v = to_pod_find(&p, &d);
	if (v == NEXT && config_services)
		v = to_pod_translate(&p, d);
	if (v == NEXT)
		v = to_pod_judge(&p, d);
	return finish(&p, v);
}
