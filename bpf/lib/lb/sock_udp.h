/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services for UDP sockets that are not connected: each sendmsg names its destination. A socket stays with its backend of
 * each Service, as it would with connection tracking: protocols that have connections of their own above UDP need it.
 * What it used last is in `sock_storage`, so that one Service costs no more; those before it are in `sock_udp`. Both are kept with the
 * socket: no other socket can push them out. The kernel holds the socket's lock while sendmsg and recvmsg programs run
 * (BPF_CGROUP_RUN_SA_PROG_LOCK) and nobody else touches an unconnected socket's, so entries are whole when they are read.
 */
#pragma once

#include "lib/lb/sock.h"

/* Whether a backend that the socket used before may still be used: not too long ago, and the Service has it. */
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

/* What the socket remembers of earlier Services, NULL if it has used one at most. */
static __always_inline struct sock_udp_entries *sock_udp_of(struct bpf_sock_addr *ctx)
{
	return bpf_sk_storage_get(&sock_udp, ctx->sk, 0, 0);
}

/*
 * Puts what the socket used last among the earlier ones, before something else takes its place. Of those, the one that was put
 * there longest ago is the one that was used longest ago. Without memory for them the socket forgets it.
 */
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
 * The backend of a Service that the socket used before the last one. There may be several, of sets that have replaced each
 * other: the last one. It is about to be the socket's last peer, so its slot is free.
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

/* A backend for a datagram to a Service; remembers it for those that follow, and for the answers. */
static __always_inline enum lb_verdict sock_udp_choose(struct bpf_sock_addr *ctx, const struct tuple *t,
						       const struct service *s, struct lb_choice *c)
{
	struct backend_set now = s->internal;
	struct sock_entry *entry = sock_entry_of(ctx);
	struct sock_udp_entries *entries;

	if (entry && sock_entry_is_service(entry, t)) {
		c->backend.address = entry->backend;
		c->backend.port = entry->backend_port;
		/* A connected socket hears its own backend only. */
		if (sock_is_connected(ctx) || sock_udp_backend_valid(&now, &c->backend, &entry->set, &entry->used))
			return LB_BACKEND;
	}
	if (sock_is_connected(ctx))
		return service_choose(t, LB_INTERNAL, bpf_get_netns_cookie(ctx), c);
	entries = sock_udp_of(ctx);
	if (!entries || !sock_udp_recall(entries, t, &now, c)) {
		enum lb_verdict verdict = service_choose(t, LB_INTERNAL, bpf_get_netns_cookie(ctx), c);

		if (verdict != LB_BACKEND)
			return verdict;
	}
	if (entry && entry->service_port)
		sock_udp_push(ctx, entry);
	sock_entry_store(ctx, t, &c->backend, c->set);
	return LB_BACKEND;
}

/*
 * The socket sends to a backend itself: answers are then that address's, not the Service's. The last peer is emptied rather than
 * deleted: sockets without one are taken for such that have used no Service.
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
 * The earlier peer that an answer is of: the last one that has the sender for its backend, NULL if there is none that is in use: later on
 * the address may be another pod's.
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
