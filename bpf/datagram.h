/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services for UDP sockets that are not connected: each sendmsg names its destination. A socket stays with its backend of
 * each Service, as it would with connection tracking: protocols that have connections of their own above UDP need it.
 * What it used last is kept with the socket, so that one Service costs no table; the others are in `datagrams`.
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

static __always_inline void datagram_put(const struct datagram_key *key, const struct datagram *value)
{
	struct datagram *d = bpf_map_lookup_elem(&datagrams, key);

	/* Finding an entry costs less than replacing it. */
	if (d && d->set == value->set && d->port == value->port && address_equals(&d->address, &value->address))
		d->used = value->used;
	else
		bpf_map_update_elem(&datagrams, key, value, BPF_ANY);
}

/* Both entries of what the socket used last, before something else takes its place. */
static __noinline void datagram_remember(__u64 cookie, const struct peer *p)
{
	struct datagram_key key = {
		.cookie = cookie,
		.address = p->service,
		.port = p->service_port,
		.kind = DATAGRAM_BACKEND,
	};
	struct datagram value = {
		.address = p->backend,
		.port = p->backend_port,
		.set = p->set,
		.used = p->used,
	};

	datagram_put(&key, &value);
	key.address = p->backend;
	key.port = p->backend_port;
	key.kind = DATAGRAM_SERVICE;
	value.address = p->service;
	value.port = p->service_port;
	datagram_put(&key, &value);
}

/* The backend of a Service that the socket used before the last one. */
static __noinline bool datagram_recall(__u64 cookie, const struct tuple *t, const struct backend_set *now,
				       struct choice *c)
{
	struct datagram_key key = {
		.cookie = cookie,
		.address = t->destination,
		.port = t->destination_port,
		.kind = DATAGRAM_BACKEND,
	};
	struct datagram *d = bpf_map_lookup_elem(&datagrams, &key);

	if (!d)
		return false;
	c->backend.address = d->address;
	c->backend.port = d->port;
	if (!datagram_holds(now, &c->backend, &d->set, &d->used))
		return false;
	c->set = now->id;
	return true;
}

/* A backend for a datagram to a Service; remembers it for those that follow, and for the answers. */
static __always_inline enum answer datagram_choose(struct bpf_sock_addr *ctx, const struct tuple *t,
						   const struct service *s, struct choice *c)
{
	struct backend_set now = s->inside;
	struct peer *p = peer_of(ctx);
	__u64 cookie;

	if (p && peer_serves(p, t)) {
		c->backend.address = p->backend;
		c->backend.port = p->backend_port;
		/* A connected socket hears its own backend only. */
		if (socket_is_connected(ctx) || datagram_holds(&now, &c->backend, &p->set, &p->used))
			return ANSWER_BACKEND;
	}
	if (socket_is_connected(ctx))
		return service_choose(t, SIDE_INSIDE, bpf_get_netns_cookie(ctx), c);
	cookie = bpf_get_socket_cookie(ctx);
	if (!p || !datagram_recall(cookie, t, &now, c)) {
		enum answer answer = service_choose(t, SIDE_INSIDE, bpf_get_netns_cookie(ctx), c);

		if (answer != ANSWER_BACKEND)
			return answer;
	}
	if (p)
		datagram_remember(cookie, p);
	peer_keep(ctx, t, &c->backend, c->set);
	return ANSWER_BACKEND;
}

/* The socket sends to a backend itself: answers are then that address's, not the Service's. */
static __noinline void datagram_forget(struct bpf_sock_addr *ctx, const struct tuple *t)
{
	struct datagram_key key = {
		.address = t->destination,
		.port = t->destination_port,
		.kind = DATAGRAM_SERVICE,
	};
	const struct peer *p = peer_of(ctx);

	if (!p || socket_is_connected(ctx))
		return;
	if (peer_is_backend(p, t))
		bpf_sk_storage_delete(&peers, ctx->sk);
	key.cookie = bpf_get_socket_cookie(ctx);
	bpf_map_delete_elem(&datagrams, &key);
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

/* Sockets that never used a Service have no peer: servers do not pay for a lookup. */
static __always_inline enum socket_return recvmsg_socket(struct bpf_sock_addr *ctx, bool ipv6)
{
	const struct peer *p = peer_of(ctx);
	struct datagram_key key = {.kind = DATAGRAM_SERVICE};
	const struct datagram *d;
	struct tuple t = {};

	if (likely(!p))
		return SOCKET_PROCEED;
	socket_destination(ctx, ipv6, &t);
	if (peer_is_backend(p, &t)) {
		socket_set_address(ctx, ipv6, &p->service, p->service_port);
		return SOCKET_PROCEED;
	}
	key.cookie = bpf_get_socket_cookie(ctx);
	key.address = t.destination;
	key.port = t.destination_port;
	d = bpf_map_lookup_elem(&datagrams, &key);
	if (d)
		socket_set_address(ctx, ipv6, &d->address, d->port);
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
