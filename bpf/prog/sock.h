/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services at the socket: connect and sendmsg get a backend's address instead of the Service's, getpeername and recvmsg
 * return the Service's.
 */
#pragma once

#include "lib/lb/sock.h"
#include "lib/lb/sock_tcp.h"
#include "lib/lb/sock_udp.h"

/* Stores the choice of a connect. A socket with an entry of its own keeps using it. */
static __always_inline void connect_store(struct bpf_sock_addr *ctx, const struct tuple *t, const struct lb_choice *c)
{
	if (t->protocol == PROTOCOL_TCP && likely(!sock_entry_of(ctx)) &&
	    likely(sock_tcp_store(bpf_get_socket_cookie(ctx), t, &c->backend)))
		return;
	sock_entry_store(ctx, t, &c->backend, c->set);
}

/* Deletes the entry of an earlier connect. */
static __always_inline void connect_delete(struct bpf_sock_addr *ctx, const struct tuple *t)
{
	if (t->protocol == PROTOCOL_TCP)
		sock_tcp_delete(bpf_get_socket_cookie(ctx));
	if (sock_entry_of(ctx))
		bpf_sk_storage_delete(&sock_storage, ctx->sk);
}

static __always_inline enum sock_return sock_connect(struct bpf_sock_addr *ctx, bool ipv6)
{
	struct lb_choice c = {};
	struct tuple t = {};
	int verdict = LB_NONE;

	sock_destination(ctx, ipv6, &t);
	if (unlikely(sock_service(ctx, &t)))
		verdict = service_choose(&t, LB_INTERNAL, bpf_get_netns_cookie(ctx), &c);
	if (verdict == LB_BACKEND) {
		connect_store(ctx, &t, &c);
		sock_set_address(ctx, ipv6, &c.backend.address, c.backend.port);
		return SOCK_PROCEED;
	}
	connect_delete(ctx, &t);
	return sock_reject(ctx, verdict);
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	return sock_connect(ctx, false);
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	return sock_connect(ctx, true);
}

static __always_inline enum sock_return sock_getpeername(struct bpf_sock_addr *ctx, bool ipv6)
{
	const struct sock_entry *entry = sock_entry_of(ctx);
	const struct sock_tcp_entry *tcp;
	struct tuple t = {};

	sock_destination(ctx, ipv6, &t);
	if (entry) {
		if (sock_entry_is_backend(entry, &t))
			sock_set_address(ctx, ipv6, &entry->service, entry->service_port);
		return SOCK_PROCEED;
	}
	if (t.protocol != PROTOCOL_TCP)
		return SOCK_PROCEED;
	tcp = sock_tcp_find(bpf_get_socket_cookie(ctx));
	if (tcp && tcp->backend_port == t.destination_port && address_equals(&tcp->backend, &t.destination))
		sock_set_address(ctx, ipv6, &tcp->service, tcp->service_port);
	return SOCK_PROCEED;
}

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx)
{
	return sock_getpeername(ctx, false);
}

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx)
{
	return sock_getpeername(ctx, true);
}

static __always_inline enum sock_return sock_sendmsg(struct bpf_sock_addr *ctx, bool ipv6)
{
	const struct service *s;
	struct lb_choice c = {};
	struct tuple t = {};
	int verdict;

	sock_destination(ctx, ipv6, &t);
	s = sock_service(ctx, &t);
	if (likely(!s)) {
		sock_udp_forget(ctx, &t);
		return SOCK_PROCEED;
	}
	verdict = sock_udp_choose(ctx, &t, s, &c);
	if (verdict != LB_BACKEND)
		return sock_reject(ctx, verdict);
	sock_set_address(ctx, ipv6, &c.backend.address, c.backend.port);
	return SOCK_PROCEED;
}

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx)
{
	return sock_sendmsg(ctx, false);
}

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx)
{
	return sock_sendmsg(ctx, true);
}

/* A socket that never used a Service has no entry, so servers pay for one lookup at most. */
static __always_inline enum sock_return sock_recvmsg(struct bpf_sock_addr *ctx, bool ipv6)
{
	const struct sock_entry *entry = sock_entry_of(ctx);
	struct sock_udp_entries *entries;
	struct tuple t = {};

	if (likely(!entry))
		return SOCK_PROCEED;
	sock_destination(ctx, ipv6, &t);
	if (!sock_entry_is_backend(entry, &t)) {
		entries = sock_udp_of(ctx);
		entry = entries ? sock_udp_reply(entries, &t) : 0;
	}
	if (entry)
		sock_set_address(ctx, ipv6, &entry->service, entry->service_port);
	return SOCK_PROCEED;
}

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx)
{
	return sock_recvmsg(ctx, false);
}

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx)
{
	return sock_recvmsg(ctx, true);
}

/* The socket is closed: frees its slot. */
SEC("cgroup/sock_release")
int sock_release(struct bpf_sock *sk)
{
	if (sk->protocol == PROTOCOL_TCP)
		sock_tcp_delete(bpf_get_socket_cookie(sk));
	return SOCK_PROCEED;
}
