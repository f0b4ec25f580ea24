/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* No packet's: what the agent runs about sessions that are young. */
#pragma once

#include "lib/young.h"

/* A place with a session, which nobody else gets until young_release; NULL if there is none, or somebody else is at it. Packets go on changing the session. */
static __always_inline struct young_session *young_take(__u32 index)
{
	struct young_session *y = young_place(&index);

	if (!y || !*young_protocol(y) || __sync_lock_test_and_set(&y->taken, 1))
		return 0;
	if (*young_protocol(y))
		return y;
	young_release(y);
	return 0;
}

static long settle_session(__u32 index, void *none)
{
	struct young_session *y = young_take(index);

	(void)none;
	if (!y)
		return 0; /* who is about to put another one there moves it, and the next look finds what is only told of */
	flow_introduce(&y->key, &y->session);
	young_move(y);
	__sync_lock_test_and_set(young_protocol(y), 0);
	young_release(y);
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

static long tell_session(__u32 index, void *none)
{
	struct young_session *y = young_place(&index);

	(void)none;
	if (!y || !*young_protocol(y) || y->session.flags & FLOW_KNOWN)
		return 0;
	y = young_take(index);
	if (!y)
		return 0; /* who is at it tells of what is there, or the next round does */
	flow_introduce(&y->key, &y->session);
	young_release(y);
	return 0;
}

/* Tells of all young sessions that have not been told of yet. Loaded only where flows tell of sessions. */
SEC("syscall")
int tell_sessions(void *none)
{
	(void)none;
	bpf_loop(YOUNG_SESSIONS_MAX, tell_session, 0, 0);
	return 0;
}
