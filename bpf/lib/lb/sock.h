/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Translation at the socket: addresses, the socket's entry in `sock_storage`, and the Service lookup. The kernel
 * holds the socket lock while these programs run. IPv6 sockets pass IPv4 addresses as IPv4-mapped ones, as the
 * maps hold them.
 */
#pragma once

#include "config.h"
#include "lib/lb/service.h"
#include "lib/net/packet.h"

/* Return values of cgroup/sock_addr programs. */
enum sock_return {
	SOCK_DENY = 0,	  /* EPERM, or the error of bpf_set_retval */
	SOCK_PROCEED = 1, /* with the address as rewritten */
};

/* asm-generic/errno.h */
#define ECONNREFUSED 111

/* The destination of connect or sendmsg. The rest of the tuple is not known yet. */
static __always_inline void sock_destination(struct bpf_sock_addr *ctx, bool ipv6, struct tuple *t)
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

static __always_inline void sock_set_address(struct bpf_sock_addr *ctx, bool ipv6, const struct address *a, __be16 port)
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

static __always_inline bool sock_is_connected(struct bpf_sock_addr *ctx)
{
	return ctx->sk->state == BPF_TCP_ESTABLISHED;
}

static __always_inline struct sock_entry *sock_entry_of(struct bpf_sock_addr *ctx)
{
	return bpf_sk_storage_get(&sock_storage, ctx->sk, 0, 0);
}

/*
 * Stores the choice with the socket. If memory is short the connection succeeds, but getpeername returns the
 * backend.
 */
static __always_inline void sock_entry_store(struct bpf_sock_addr *ctx, const struct tuple *t, const struct backend *b,
					     __u32 set)
{
	struct sock_entry new = {
		.service = t->destination,
		.backend = b->address,
		.service_port = t->destination_port,
		.backend_port = b->port,
		.set = set,
		.used = bpf_ktime_get_coarse_ns(),
	};
	struct sock_entry *entry = bpf_sk_storage_get(&sock_storage, ctx->sk, &new, BPF_SK_STORAGE_GET_F_CREATE);

	if (entry)
		*entry = new;
}

static __always_inline bool sock_entry_is_service(const struct sock_entry *entry, const struct tuple *t)
{
	return entry->service_port == t->destination_port && address_equals(&entry->service, &t->destination);
}

static __always_inline bool sock_entry_is_backend(const struct sock_entry *entry, const struct tuple *t)
{
	return entry->backend_port == t->destination_port && address_equals(&entry->backend, &t->destination);
}

/*
 * The Service that a socket connects to, if the socket is translated here. Loopback frontends are for sockets of
 * the node only. A pod's source address is not known yet: from_pod translates Services with source ranges.
 */
static __always_inline const struct service *sock_service(struct bpf_sock_addr *ctx, const struct tuple *t)
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
 * The return value for a socket that gets no backend. Packets of pods go on to from_pod, which drops and counts
 * them while there is no local backend; the node's own packets would leave by the default route.
 */
static __always_inline enum sock_return sock_reject(struct bpf_sock_addr *ctx, int verdict)
{
	if (verdict == LB_REJECT && config_socket_errors) {
		bpf_set_retval(-ECONNREFUSED);
		return SOCK_DENY;
	}
	if ((verdict == DROP_NO_LOCAL_BACKEND || verdict == DROP_TUNNEL_PORT) &&
	    bpf_get_netns_cookie(ctx) == config_host_netns)
		return SOCK_DENY;
	return SOCK_PROCEED;
}
