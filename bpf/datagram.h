/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services for UDP sockets that are not connected: each sendmsg names its destination. A socket stays with its backend of
 * each Service, as it would with connection tracking: protocols that have connections of their own above UDP need it.
 * What it used last is in `peers`, so that one Service costs no more; those before it are in `earlier_peers`. Both are kept with the
 * socket: no other socket can push them out. The kernel holds the socket's lock while sendmsg and recvmsg programs run
 * (BPF_CGROUP_RUN_SA_PROG_LOCK) and nobody else touches an unconnected socket's, so entries are whole when they are read.
 */
#pragma once

#include "connect.h"

/* Whether a backend that the socket used before may still be used: not too long ago, and the Service has it. */
static __noinline bool datagram_holds(const struct backend_set *now, const struct backend *b, __u32 *set, __u64 *used)
{
	__u64 time = bpf_ktime_get_coarse_ns();
	__u32 index;

	if (time - *used > TIMEOUT_DATAGRAMS * 1000000000ULL)
		return false;
	if (*set != now->id && !service_find(now->id, now->count, b, &index))
		return false;
	*set = now->id;
	*used = time;
	return true;
}

/* What the socket remembers of earlier Services, NULL if it has used one at most. */
static __always_inline struct earlier *datagram_earlier(struct bpf_sock_addr *ctx)
{
	return bpf_sk_storage_get(&earlier_peers, ctx->sk, 0, 0);
}

/*
 * Puts what the socket used last among the earlier ones, before something else takes its place. Of those, the one that was put
 * there longest ago is the one that was used longest ago. Without memory for them the socket forgets it.
 */
static __noinline void datagram_remember(struct bpf_sock_addr *ctx, const struct peer *p)
{
	struct earlier *e = bpf_sk_storage_get(&earlier_peers, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	__u64 oldest = ~0ULL;
	__u32 slot;

	if (!e)
		return;
	if (!e->now) {
		e->now = EARLIER_PEERS;
		for (__u32 i = 0; i < EARLIER_PEERS; i++)
			e->since[i] = EARLIER_PEERS + i;
	}
	for (__u32 i = 0; i < EARLIER_PEERS; i++) {
		if (e->since[i] <= oldest)
			oldest = e->since[i];
	}
	slot = oldest % EARLIER_PEERS;
	e->now += EARLIER_PEERS;
	e->since[slot] = e->now + slot;
	e->peer[slot] = *p;
}

/*
 * The backend of a Service that the socket used before the last one. There may be several, of sets that have replaced each
 * other: the last one. It is about to be the socket's last peer, so its slot is free.
 */
static __noinline bool datagram_recall(struct earlier *e, const struct tuple *t, const struct backend_set *now,
				       struct choice *c)
{
	__u64 since = 0;
	__u32 slot;

	for (__u32 i = 0; i < EARLIER_PEERS; i++) {
		if (peer_serves(&e->peer[i], t) && e->since[i] >= since)
			since = e->since[i];
	}
	if (!since)
		return false;
	slot = since % EARLIER_PEERS;
	c->backend.address = e->peer[slot].backend;
	c->backend.port = e->peer[slot].backend_port;
	if (!datagram_holds(now, &c->backend, &e->peer[slot].set, &e->peer[slot].used))
		return false;
	e->since[slot] = EARLIER_PEERS + slot;
	c->set = now->id;
	return true;
}

/* A backend for a datagram to a Service; remembers it for those that follow, and for the answers. */
static __always_inline enum answer datagram_choose(struct bpf_sock_addr *ctx, const struct tuple *t,
						   const struct service *s, struct choice *c)
{
	struct backend_set now = s->inside;
	struct peer *p = peer_of(ctx);
	struct earlier *e;

	if (p && peer_serves(p, t)) {
		c->backend.address = p->backend;
		c->backend.port = p->backend_port;
		/* A connected socket hears its own backend only. */
		if (socket_is_connected(ctx) || datagram_holds(&now, &c->backend, &p->set, &p->used))
			return ANSWER_BACKEND;
	}
	if (socket_is_connected(ctx))
		return service_choose(t, SIDE_INSIDE, bpf_get_netns_cookie(ctx), c);
	e = datagram_earlier(ctx);
	if (!e || !datagram_recall(e, t, &now, c)) {
		enum answer answer = service_choose(t, SIDE_INSIDE, bpf_get_netns_cookie(ctx), c);

		if (answer != ANSWER_BACKEND)
			return answer;
	}
	if (p && p->service_port)
		datagram_remember(ctx, p);
	peer_keep(ctx, t, &c->backend, c->set);
	return ANSWER_BACKEND;
}

/*
 * The socket sends to a backend itself: answers are then that address's, not the Service's. The last peer is emptied rather than
 * deleted: sockets without one are taken for such that have used no Service.
 */
static __noinline void datagram_forget(struct bpf_sock_addr *ctx, const struct tuple *t)
{
	struct peer *p = peer_of(ctx);
	struct earlier *e;

	if (!p || socket_is_connected(ctx))
		return;
	if (peer_is_backend(p, t))
		__builtin_memset(p, 0, sizeof(*p));
	e = datagram_earlier(ctx);
	if (!e)
		return;
	for (__u32 i = 0; i < EARLIER_PEERS; i++) {
		if (peer_is_backend(&e->peer[i], t))
			e->since[i] = EARLIER_PEERS + i;
	}
}

static __always_inline enum socket_return sendmsg_socket(struct bpf_sock_addr *ctx, bool ipv6)
{
	const struct service *s;
	struct choice c = {};
	struct tuple t = {};
	enum answer answer;

	socket_destination(ctx, ipv6, &t);
	s = socket_service(ctx, &t);
	if (likely(!s)) {
		datagram_forget(ctx, &t);
		return SOCKET_PROCEED;
	}
	answer = datagram_choose(ctx, &t, s, &c);
	if (answer != ANSWER_BACKEND)
		return socket_turn_away(ctx, answer);
	socket_set_address(ctx, ipv6, &c.backend.address, c.backend.port);
	return SOCKET_PROCEED;
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	return sendmsg_socket(ctx, false);
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	return sendmsg_socket(ctx, true);
}

/*
 * The earlier peer that an answer is of: the last one that has the sender for its backend, NULL if there is none that is in use: later on
 * the address may be another pod's.
 */
static __noinline const struct peer *datagram_answers(struct earlier *e, const struct tuple *t)
{
	__u64 time = bpf_ktime_get_coarse_ns();
	const __u64 none = 2 * EARLIER_PEERS - 1;
	struct peer *p;
	__u64 since = none;

	for (__u32 i = 0; i < EARLIER_PEERS; i++) {
		if (peer_is_backend(&e->peer[i], t) && e->since[i] >= since)
			since = e->since[i];
	}
	if (since == none)
		return 0;
	p = &e->peer[since % EARLIER_PEERS];
	if (time - p->used > TIMEOUT_DATAGRAMS * 1000000000ULL)
		return 0;
	p->used = time;
	return p;
}

/* Sockets that never used a Service have no peer: servers do not pay for a lookup. */
static __always_inline enum socket_return recvmsg_socket(struct bpf_sock_addr *ctx, bool ipv6)
{
	const struct peer *p = peer_of(ctx);
	struct earlier *e;
	struct tuple t = {};

	if (likely(!p))
		return SOCKET_PROCEED;
	socket_destination(ctx, ipv6, &t);
	if (!peer_is_backend(p, &t)) {
		e = datagram_earlier(ctx);
		p = e ? datagram_answers(e, &t) : 0;
	}
	if (p)
		socket_set_address(ctx, ipv6, &p->service, p->service_port);
	return SOCKET_PROCEED;
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx)
{
	return recvmsg_socket(ctx, false);
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx)
{
	return recvmsg_socket(ctx, true);
}
