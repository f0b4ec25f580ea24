/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services at the socket: connect and sendmsg get a backend's address instead of the Service's, getpeername and recvmsg
 * tell the Service's. No packet has to be rewritten then. Addresses of IPv4 on sockets of IPv6 come as IPv4-mapped ones,
 * which is what the tables hold. The kernel holds the socket's lock meanwhile.
 */
#pragma once

#include "config.h"
#include "lib/packet.h"
#include "lib/service.h"
#include "stream.h"

/* errno of a connection that is refused (asm-generic/errno.h). */
#define ERROR_REFUSED 111

/* Where a socket connects or sends to; that is all of the tuple that is known before it has its own address. */
static __always_inline void socket_destination(struct bpf_sock_addr *ctx, bool ipv6, struct tuple *t)
{
	if (ipv6) {
		t->destination.word[0] = ctx->user_ip6[0];
		t->destination.word[1] = ctx->user_ip6[1];
		t->destination.word[2] = ctx->user_ip6[2];
		t->destination.word[3] = ctx->user_ip6[3];
	} else {
		address_from_ipv4(&t->destination, ctx->user_ip4);
	}
	t->destination_port = ctx->user_port;
	t->protocol = ctx->protocol;
}

static __always_inline void socket_set_address(struct bpf_sock_addr *ctx, bool ipv6, const struct address *a,
					       __be16 port)
{
	if (ipv6) {
		ctx->user_ip6[0] = a->word[0];
		ctx->user_ip6[1] = a->word[1];
		ctx->user_ip6[2] = a->word[2];
		ctx->user_ip6[3] = a->word[3];
	} else {
		ctx->user_ip4 = a->word[3];
	}
	ctx->user_port = port;
}

static __always_inline bool socket_is_connected(struct bpf_sock_addr *ctx)
{
	return ctx->sk->state == BPF_TCP_ESTABLISHED;
}

static __always_inline struct peer *peer_of(struct bpf_sock_addr *ctx)
{
	return bpf_sk_storage_get(&peers, ctx->sk, 0, 0);
}

/* Keeps a choice with the socket. Without memory for it the connection is made all the same, and getpeername tells the backend. */
static __always_inline void peer_keep(struct bpf_sock_addr *ctx, const struct tuple *t, const struct backend *b,
				      __u32 set)
{
	struct peer new = {
		.service = t->destination,
		.backend = b->address,
		.service_port = t->destination_port,
		.backend_port = b->port,
		.set = set,
		.used = bpf_ktime_get_coarse_ns(),
	};
	struct peer *p = bpf_sk_storage_get(&peers, ctx->sk, &new, BPF_SK_STORAGE_GET_F_CREATE);

	if (p)
		*p = new;
}

/* Whether the peer's Service is the one that the socket asks for. */
static __always_inline bool peer_serves(const struct peer *p, const struct tuple *t)
{
	return p->service_port == t->destination_port && address_equals(&p->service, &t->destination);
}

/* Whether the address is that of the peer's backend. */
static __always_inline bool peer_is_backend(const struct peer *p, const struct tuple *t)
{
	return p->backend_port == t->destination_port && address_equals(&p->backend, &t->destination);
}

/*
 * The Service that a socket asks for, if it is the socket's to translate. Loopback addresses are Services' for the node itself only.
 * A pod's source is known when its packets are: who may use a Service with source ranges, from_pod tells.
 */
static __always_inline const struct service *socket_service(struct bpf_sock_addr *ctx, const struct tuple *t)
{
	const struct service *s;
	struct frontend f;

	service_frontend(&f, t);
	s = service_of(&f);
	if (likely(!s))
		return 0;
	if ((s->flags & SERVICE_SOURCES || address_is_loopback(&t->destination)) &&
	    bpf_get_netns_cookie(ctx) != config_host_netns)
		return 0;
	return s;
}

/*
 * What to tell a socket that gets no backend. A pod's packets meet from_pod, which drops them for as long as there is no
 * backend here, and counts them; the node's own would leave by the default route.
 */
static __always_inline enum socket_return socket_turn_away(struct bpf_sock_addr *ctx, enum answer answer)
{
	if (answer == ANSWER_REFUSE && config_socket_errors) {
		bpf_set_retval(-ERROR_REFUSED);
		return SOCKET_DENY;
	}
	if ((answer == ANSWER_DROP || answer == ANSWER_TUNNEL) && bpf_get_netns_cookie(ctx) == config_host_netns)
		return SOCKET_DENY;
	return SOCKET_PROCEED;
}

/* Keeps the choice of a connect. What the socket has a memory of its own for is written there. */
static __always_inline void connect_keep(struct bpf_sock_addr *ctx, const struct tuple *t, const struct choice *c)
{
	if (t->protocol == PROTOCOL_TCP && likely(!peer_of(ctx)) &&
	    likely(stream_keep(bpf_get_socket_cookie(ctx), t, &c->backend)))
		return;
	peer_keep(ctx, t, &c->backend, c->set);
}

/* Forgets that of an earlier connect. */
static __always_inline void connect_forget(struct bpf_sock_addr *ctx, const struct tuple *t)
{
	if (t->protocol == PROTOCOL_TCP)
		stream_forget(bpf_get_socket_cookie(ctx));
	if (peer_of(ctx))
		bpf_sk_storage_delete(&peers, ctx->sk);
}

static __always_inline enum socket_return connect_socket(struct bpf_sock_addr *ctx, bool ipv6)
{
	struct choice c = {};
	struct tuple t = {};
	enum answer answer = ANSWER_NONE;

	socket_destination(ctx, ipv6, &t);
	if (unlikely(socket_service(ctx, &t)))
		answer = service_choose(&t, SIDE_INSIDE, bpf_get_netns_cookie(ctx), &c);
	if (answer == ANSWER_BACKEND) {
		connect_keep(ctx, &t, &c);
		socket_set_address(ctx, ipv6, &c.backend.address, c.backend.port);
		return SOCKET_PROCEED;
	}
	connect_forget(ctx, &t);
	return socket_turn_away(ctx, answer);
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	return connect_socket(ctx, false);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	return connect_socket(ctx, true);
}

static __always_inline enum socket_return getpeername_socket(struct bpf_sock_addr *ctx, bool ipv6)
{
	const struct peer *p = peer_of(ctx);
	const struct stream *s;
	struct tuple t = {};

	socket_destination(ctx, ipv6, &t);
	if (p) {
		if (peer_is_backend(p, &t))
			socket_set_address(ctx, ipv6, &p->service, p->service_port);
		return SOCKET_PROCEED;
	}
	if (t.protocol != PROTOCOL_TCP)
		return SOCKET_PROCEED;
	s = stream_of(bpf_get_socket_cookie(ctx));
	if (s && s->backend_port == t.destination_port && address_equals(&s->backend, &t.destination))
		socket_set_address(ctx, ipv6, &s->service, s->service_port);
	return SOCKET_PROCEED;
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	return getpeername_socket(ctx, false);
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	return getpeername_socket(ctx, true);
}
