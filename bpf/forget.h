/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* No packet's: what the agent runs when a pod is gone, or comes, so that who gets its address inherits nothing. */
#pragma once

#include "lib/young.h"

static __always_inline bool forget_is_of(const struct tuple *key, const struct address *pod)
{
	return address_equals(&key->source, pod) || address_equals(&key->destination, pod);
}

static long forget_young(__u32 index, struct forgotten *f)
{
	struct young_session *y = young_place(&index);

	if (!y || !forget_is_of(&y->key, &f->pod) || __sync_lock_test_and_set(&y->taken, 1))
		return 0;
	if (forget_is_of(&y->key, &f->pod))
		*(volatile __u32 *)young_protocol(y) = 0;
	young_release(y);
	return 0;
}

static long forget_session(void *map, struct tuple *key, struct session *s, struct forgotten *f)
{
	(void)s;
	if (forget_is_of(key, &f->pod))
		bpf_map_delete_elem(map, key);
	return 0;
}

static long forget_slot(void *map, struct session_slot *at, struct tuple *key, struct forgotten *f)
{
	(void)key;
	if (address_equals(&at->pod, &f->pod))
		bpf_map_delete_elem(map, at);
	return 0;
}

/* Forgets every session that an address of a pod is an end of, and what is charged to it. */
SEC("syscall")
int forget_pod(struct forgotten *parameter)
{
	struct forgotten f = *parameter;

	bpf_loop(YOUNG_SESSIONS_MAX, forget_young, &f, 0);
	/* Whoever changes a table meanwhile may make the walk over it miss something: twice. */
	bpf_for_each_map_elem(&sessions, forget_session, &f, 0);
	bpf_for_each_map_elem(&sessions, forget_session, &f, 0);
	bpf_for_each_map_elem(&session_slots, forget_slot, &f, 0);
	bpf_map_delete_elem(&session_shares, &f.pod);
	return 0;
}
