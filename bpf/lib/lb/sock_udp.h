/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Translation of unconnected UDP sockets: each sendmsg has a destination. A socket keeps its backend of each
 * Service, as with conntrack: protocols with connections above UDP (QUIC, DTLS) need it. The last Service is in
 * `sock_storage`, earlier ones in `sock_udp`, so a socket with one Service pays no more than that. Both are socket
 * storage: other sockets cannot evict them. The kernel holds the socket lock (BPF_CGROUP_RUN_SA_PROG_LOCK), so
 * entries are consistent.
 */
#pragma once

#include "lib/lb/sock.h"

/* Whether an earlier backend may still be used: used recently, and still in the set. */
static __noinline bool sock_udp_backend_valid(const struct backend_set *now, const struct backend *b, __u32 *set,
					      __u64 *used)
{
	__u64 time = bpf_ktime_get_coarse_ns();
	__u32 index;

	if (time - *used > TIMEOUT_UDP * 1000000000ULL)
		return false;
	if (*set != now->id && !service_find(now->id, now->count, b, &index))
		return false;
	*set = now->id;
	*used = time;
	return true;
}

/* The earlier Services of a socket; NULL if it has used one at most. */
static __always_inline struct sock_udp_entries *sock_udp_of(struct bpf_sock_addr *ctx)
{
	return bpf_sk_storage_get(&sock_udp, ctx->sk, 0, 0);
}

/* Moves the last Service to the earlier ones and evicts the oldest. If memory is short the socket loses it. */
static __noinline void sock_udp_push(struct bpf_sock_addr *ctx, const struct sock_entry *entry)
{
	struct sock_udp_entries *entries = bpf_sk_storage_get(&sock_udp, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	__u64 oldest = ~0ULL;
	__u32 slot;

	if (!entries)
		return;
	if (!entries->now) {
		entries->now = SOCK_UDP_ENTRIES;
		for (__u32 i = 0; i < SOCK_UDP_ENTRIES; i++)
			entries->since[i] = SOCK_UDP_ENTRIES + i;
	}
	for (__u32 i = 0; i < SOCK_UDP_ENTRIES; i++) {
		if (entries->since[i] <= oldest)
			oldest = entries->since[i];
	}
	slot = oldest % SOCK_UDP_ENTRIES;
	entries->now += SOCK_UDP_ENTRIES;
	entries->since[slot] = entries->now + slot;
	entries->entry[slot] = *entry;
}

/*
 * The backend of an earlier Service. Several entries may match, of sets that replaced each other: the latest
 * counts. The caller makes it the last Service, so its slot is free.
 */
static __noinline bool sock_udp_recall(struct sock_udp_entries *entries, const struct tuple *t,
				       const struct backend_set *now, struct lb_choice *c)
{
	__u64 since = 0;
	__u32 slot;

	for (__u32 i = 0; i < SOCK_UDP_ENTRIES; i++) {
		if (sock_entry_is_service(&entries->entry[i], t) && entries->since[i] >= since)
			since = entries->since[i];
	}
	if (!since)
		return false;
	slot = since % SOCK_UDP_ENTRIES;
	c->backend.address = entries->entry[slot].backend;
	c->backend.port = entries->entry[slot].backend_port;
	if (!sock_udp_backend_valid(now, &c->backend, &entries->entry[slot].set, &entries->entry[slot].used))
		return false;
	entries->since[slot] = SOCK_UDP_ENTRIES + slot;
	c->set = now->id;
	return true;
}

/* Chooses the backend of a datagram, and stores it for later datagrams and replies. */
static __always_inline int sock_udp_choose(struct bpf_sock_addr *ctx, const struct tuple *t, const struct service *s,
					   struct lb_choice *c)
{
	struct backend_set now = s->internal;
	struct sock_entry *entry = sock_entry_of(ctx);
	struct sock_udp_entries *entries;

	if (entry && sock_entry_is_service(entry, t)) {
		c->backend.address = entry->backend;
		c->backend.port = entry->backend_port;
		/* A connected socket receives from its backend only. */
		if (sock_is_connected(ctx) || sock_udp_backend_valid(&now, &c->backend, &entry->set, &entry->used))
			return LB_BACKEND;
	}
	if (sock_is_connected(ctx))
		return service_choose(t, LB_INTERNAL, bpf_get_netns_cookie(ctx), c);
	entries = sock_udp_of(ctx);
	if (!entries || !sock_udp_recall(entries, t, &now, c)) {
		int verdict = service_choose(t, LB_INTERNAL, bpf_get_netns_cookie(ctx), c);

		if (verdict != LB_BACKEND)
			return verdict;
	}
	if (entry && entry->service_port)
		sock_udp_push(ctx, entry);
	sock_entry_store(ctx, t, &c->backend, c->set);
	return LB_BACKEND;
}

/*
 * The socket sends to a backend's own address: replies from it then keep that address. The last entry is cleared
 * and not deleted: a socket without an entry counts as one that never used a Service.
 */
static __noinline void sock_udp_forget(struct bpf_sock_addr *ctx, const struct tuple *t)
{
	struct sock_entry *entry = sock_entry_of(ctx);
	struct sock_udp_entries *entries;

	if (!entry || sock_is_connected(ctx))
		return;
	if (sock_entry_is_backend(entry, t))
		__builtin_memset(entry, 0, sizeof(*entry));
	entries = sock_udp_of(ctx);
	if (!entries)
		return;
	for (__u32 i = 0; i < SOCK_UDP_ENTRIES; i++) {
		if (sock_entry_is_backend(&entries->entry[i], t))
			entries->since[i] = SOCK_UDP_ENTRIES + i;
	}
}

/*
 * The earlier entry that a reply belongs to: the latest one with this backend. NULL if it has timed out, since the
 * address may be another pod's by now.
 */
static __noinline const struct sock_entry *sock_udp_reply(struct sock_udp_entries *entries, const struct tuple *t)
{
	__u64 time = bpf_ktime_get_coarse_ns();
	const __u64 none = 2 * SOCK_UDP_ENTRIES - 1;
	struct sock_entry *entry;
	__u64 since = none;

	for (__u32 i = 0; i < SOCK_UDP_ENTRIES; i++) {
		if (sock_entry_is_backend(&entries->entry[i], t) && entries->since[i] >= since)
			since = entries->since[i];
	}
	if (since == none)
		return 0;
	entry = &entries->entry[since % SOCK_UDP_ENTRIES];
	if (time - entry->used > TIMEOUT_UDP * 1000000000ULL)
		return 0;
	entry->used = time;
	return entry;
}
