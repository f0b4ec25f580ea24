/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that the agent runs: they move, report and delete conntrack entries, and report counted drops. */
#pragma once

#include "lib/flow/drops.h"
#include "lib/policy/ct_new.h"

/* Locks a slot that has an entry; NULL if it is empty or locked. Packets may still update the entry. */
static __always_inline struct ct_new_entry *ct_new_lock(__u32 index)
{
	struct ct_new_entry *slot = ct_new_slot(&index);

	if (!slot || !*ct_new_protocol(slot) || __sync_lock_test_and_set(&slot->lock, 1))
		return 0;
	if (*ct_new_protocol(slot))
		return slot;
	ct_new_unlock(slot);
	return 0;
}

static long flush_entry(__u32 index, void *none)
{
	struct ct_new_entry *slot = ct_new_lock(index);

	(void)none;
	if (!slot)
		return 0; /* another CPU is moving the entry; the next run finds what is left */
	flow_ct_report(&slot->key, &slot->entry);
	ct_new_flush(slot);
	__sync_lock_test_and_set(ct_new_protocol(slot), 0);
	ct_new_unlock(slot);
	return 0;
}

/* Moves all entries of `ct_new` to `conntrack`, closed ones included. Concurrent updates of an entry may be lost. */
SEC("syscall")
int flush_conntrack(void *none)
{
	(void)none;
	bpf_loop(CT_NEW_MAX, flush_entry, 0, 0);
	return 0;
}

static long report_entry(__u32 index, void *none)
{
	struct ct_new_entry *slot = ct_new_slot(&index);

	(void)none;
	if (!slot || !*ct_new_protocol(slot) || slot->entry.flags & FLOW_REPORTED)
		return 0;
	slot = ct_new_lock(index);
	if (!slot)
		return 0; /* another CPU reports it, or the next run does */
	flow_ct_report(&slot->key, &slot->entry);
	ct_new_unlock(slot);
	return 0;
}

/* Reports all entries of `ct_new` that have not been reported. Loaded only if flows report connections. */
SEC("syscall")
int report_flows(void *none)
{
	(void)none;
	bpf_loop(CT_NEW_MAX, report_entry, 0, 0);
	return 0;
}

/* flush_pod: run when a pod is added or deleted, so that the next pod with its address inherits no entries. */

static __always_inline bool flush_pod_matches(const struct tuple *key, const struct address *pod)
{
	return address_equals(&key->source, pod) || address_equals(&key->destination, pod);
}

static long flush_pod_new(__u32 index, struct flush_pod_args *f)
{
	struct ct_new_entry *slot = ct_new_slot(&index);

	if (!slot || !flush_pod_matches(&slot->key, &f->pod) || __sync_lock_test_and_set(&slot->lock, 1))
		return 0;
	if (flush_pod_matches(&slot->key, &f->pod))
		*(volatile __u32 *)ct_new_protocol(slot) = 0;
	ct_new_unlock(slot);
	return 0;
}

static long flush_pod_entry(void *map, struct tuple *key, struct ct_entry *ct, struct flush_pod_args *f)
{
	(void)ct;
	if (flush_pod_matches(key, &f->pod))
		bpf_map_delete_elem(map, key);
	return 0;
}

static long flush_pod_slot(void *map, struct ct_slot *at, struct tuple *key, struct flush_pod_args *f)
{
	(void)key;
	if (address_equals(&at->pod, &f->pod))
		bpf_map_delete_elem(map, at);
	return 0;
}

/* Deletes all entries with an address of the pod, and its slots. */
SEC("syscall")
int flush_pod(struct flush_pod_args *parameter)
{
	struct flush_pod_args f = *parameter;

	bpf_loop(CT_NEW_MAX, flush_pod_new, &f, 0);
	/* A walk may miss entries while others insert: walk twice. */
	bpf_for_each_map_elem(&conntrack, flush_pod_entry, &f, 0);
	bpf_for_each_map_elem(&conntrack, flush_pod_entry, &f, 0);
	bpf_for_each_map_elem(&ct_slots, flush_pod_slot, &f, 0);
	bpf_map_delete_elem(&ct_shares, &f.pod);
	return 0;
}

/* flush_drops: reports drops that were only counted. */

/* The largest number of CPUs that Linux supports on x86. */
#define FLUSH_CPUS_MAX 8192

/* All slots of `flow_drops`, one CPU after the other. */
static long flush_drop(__u32 index, void *none)
{
	__u32 slot = index % FLOW_DROPS_MAX;
	struct flow_drop *d = bpf_map_lookup_percpu_elem(&flow_drops, &slot, index / FLOW_DROPS_MAX);
	__u64 now, reported, packets, bytes;
	struct flow_event *e;

	(void)none;
	if (!d)
		return 1; /* no more CPUs */
	reported = *(volatile __u64 *)&d->reported;
	if (!*(volatile __u64 *)&d->packets)
		return 0;
	now = bpf_ktime_get_ns();
	if (now < reported + FLOW_INTERVAL)
		return 0;
	e = bpf_ringbuf_reserve(&flows, sizeof(*e), 0);
	if (!e)
		return 1; /* the next run reports them */
	flow_fill_drops(e, d, 0, 0);
	/*
	 * A CPU that reports a drop sets `reported` first. If it changed, the copied fields may belong to another
	 * drop: leave the slot, or count the packets as lost.
	 */
	if (__sync_val_compare_and_swap(&d->reported, reported, now) != reported) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		return 0;
	}
	packets = __sync_lock_test_and_set(&d->packets, 0);
	bytes = __sync_lock_test_and_set(&d->bytes, 0);
	if (!packets || *(volatile __u64 *)&d->reported != now) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		if (packets)
			flow_count_lost(FLOW_DROPPED, FLOW_LOSS_EVICTED, packets);
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
 * Reports drops that were counted since a similar one was reported, a second later. Loaded only if flows report
 * drops.
 */
SEC("syscall")
int flush_drops(void *none)
{
	(void)none;
	bpf_loop(FLOW_DROPS_MAX * FLUSH_CPUS_MAX, flush_drop, 0, 0);
	return 0;
}
