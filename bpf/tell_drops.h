/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* No packet's: what the agent runs about drops, so that the last ones of a kind are told of too. */
#pragma once

#include "lib/flow_drop.h"

/* As many CPUs as Linux can be built for, on x86. */
#define TELL_CPUS_MAX 8192

/* The slots of `flow_drops` of one CPU after the other. */
static long tell_drop(__u32 index, void *none)
{
	__u32 slot = index % FLOW_DROPS_MAX;
	struct flow_drop *d = bpf_map_lookup_percpu_elem(&flow_drops, &slot, index / FLOW_DROPS_MAX);
	__u64 now, told, packets, bytes;
	struct flow_event *e;

	(void)none;
	if (!d)
		return 1; /* there are no more CPUs */
	told = *(volatile __u64 *)&d->told;
	if (!*(volatile __u64 *)&d->packets)
		return 0;
	now = bpf_ktime_get_ns();
	if (now < told + FLOW_INTERVAL)
		return 0;
	e = bpf_ringbuf_reserve(&flows, sizeof(*e), 0);
	if (!e)
		return 1; /* the next round tells of them */
	flow_fill_drops(e, d, 0, 0);
	/*
	 * Whoever tells of a drop here meanwhile says so in `told` before anything else. What was read before may be of two kinds then, and what
	 * was counted may be of another one than what was read: the one is left to be told of, the other is lost.
	 */
	if (__sync_val_compare_and_swap(&d->told, told, now) != told) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		return 0;
	}
	packets = __sync_lock_test_and_set(&d->packets, 0);
	bytes = __sync_lock_test_and_set(&d->bytes, 0);
	if (!packets || *(volatile __u64 *)&d->told != now) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		if (packets)
			flow_lose(FLOW_DROPPED, FLOW_LOSS_FORGOTTEN, packets);
		return 0;
	}
	e->time = now;
	e->kind = FLOW_DROPPED;
	e->packets[0] = packets;
	e->bytes[0] = bytes;
	flow_submit(e);
	return 0;
}

/*
 * Tells of the drops that were only counted, since one like them was told of: a second later, unless a packet has told of them by then. Loaded
 * only where flows tell of drops.
 */
SEC("syscall")
int tell_drops(void *none)
{
	(void)none;
	bpf_loop(FLOW_DROPS_MAX * TELL_CPUS_MAX, tell_drop, 0, 0);
	return 0;
}
