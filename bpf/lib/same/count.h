/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters of --same-node=sockets. */
#pragma once

#include "lib/net/verdict.h"
#include "maps_same_node.h"

/* Adds to a counter. Atomic: programs at sockets may be preempted. */
static __always_inline void same_node_count(enum same_node_count which, __u64 n)
{
	__u32 index = which;
	__u64 *count = bpf_map_lookup_elem(&sn_counts, &index);

	if (count)
		__sync_fetch_and_add(count, n);
}
