/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Egress of the host's end of a pod's device: the host's stack delivers to a pod. Redirected packets do not come here. */
#pragma once

#include "lib/endpoint.h"
#include "lib/finish.h"

SEC("tcx/egress")
int to_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_POD};
	enum verdict v = packet_parse(&p);

	if (v == NEXT)
		v = endpoint_check_destination(&p);
	return finish(&p, v);
}
