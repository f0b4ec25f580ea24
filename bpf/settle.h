/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* No packet's: the agent runs it before it looks at sessions. */
#pragma once

#include "lib/young.h"

static long settle_session(__u32 index, void *none)
{
	struct young_session *y = bpf_map_lookup_elem(&young_sessions, &index);

	(void)none;
	if (!y)
		return 1;
	if (!*young_protocol(y) || __sync_lock_test_and_set(&y->taken, 1))
		return 0; /* who changes it moves what is there */
	if (*young_protocol(y))
		young_move(y);
	__sync_lock_test_and_set(young_protocol(y), 0);
	*(volatile __u32 *)&y->taken = 0;
	return 0;
}

/* Moves all young sessions to `sessions`, also those that are over. What a packet changes of one in that moment may be lost. */
SEC("syscall")
int settle_sessions(void *none)
{
	(void)none;
	bpf_loop(YOUNG_SESSIONS_MAX, settle_session, 0, 0);
	return 0;
}
