/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The last stage of every tc program. */
#pragma once

#include "lib/net/packet.h"
#include "lib/policy/policy_context.h"

/* Counts a drop. A missing counter must not change the verdict. */
static __always_inline void count_drop(enum program program, enum drop_reason reason, __u32 bytes)
{
	__u32 index = program * DROP_MAX + reason;
	struct drop_count *count = bpf_map_lookup_elem(&drops, &index);

	if (count) {
		count->packets++;
		count->bytes += bytes;
	}
}

/* Whether policies dropped the packet. */
static __always_inline bool finish_is_policy(enum drop_reason reason)
{
	switch (reason) {
	case DROP_INGRESS_POLICY:
	case DROP_EGRESS_POLICY:
	case DROP_INGRESS_POLICY_PENDING:
	case DROP_EGRESS_POLICY_PENDING:
	case DROP_INTERNAL_ERROR:
	case DROP_UNREADABLE:
		return true;
	default:
		return false;
	}
}

static __always_inline void finish_report(struct __sk_buff *skb, enum program program, enum drop_reason reason)
{
	if (config_policy && finish_is_policy(reason))
		policy_report_drop(skb, flow_drop_id(program, reason));
	else
		flow_packet_dropped(skb, flow_drop_id(program, reason));
}

/* Counts, reports and converts a verdict to the return code of tc; nothing else does. */
static __always_inline int finish(const struct packet *p, enum verdict v)
{
	switch (v) {
	case REDIRECT:
		return p->action;
	case DROP:
		count_drop(p->program, p->reason, p->skb->len);
		if (config_flows != FLOWS_OFF)
			finish_report(p->skb, p->program, p->reason);
		return TC_DROP;
	default:
		return TC_NEXT;
	}
}
