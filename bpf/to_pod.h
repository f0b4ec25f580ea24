/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Egress of the host's end of a pod's device: the host's stack delivers to a pod. Redirected packets do not come here. */
#pragma once

#include "config.h"
#include "lib/endpoint.h"
#include "lib/finish.h"
#include "lib/translate.h"

/*
 * Answers of Services that came through the stack: of backends that are the node itself, and all to pods whose packets
 * go through it. Only here may they get the Service's address, which the stack might not take from outside.
 */
STAGE to_pod_translate(struct packet *p)
{
	if (!packet_is_ip(p) || !bpf_map_lookup_elem(&translated_pods, &p->destination))
		return NEXT;
	return translate(p, PLACE_TO_POD, TRANSLATE_ANSWERS);
}

SEC("tcx/egress")
int to_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_POD};
	enum verdict v = packet_parse(&p);

	if (v == NEXT)
		v = endpoint_check_destination(&p);
	if (v == NEXT && config_services)
		v = to_pod_translate(&p);
	return finish(&p, v);
}
