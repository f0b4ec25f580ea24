/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Services at the socket: connect and sendmsg get a backend's address instead of the Service's, getpeername and recvmsg
 * tell the Service's. No packet has to be rewritten then. Addresses of IPv4 on sockets of IPv6 come as IPv4-mapped ones,
 * which is what the tables hold. The kernel holds the socket's lock meanwhile.
 */
#pragma once

#include "config.h"
#include "lib/lb/service.h"
#include "lib/net/packet.h"

/* What the kernel expects of programs at sockets. */
enum sock_return {
	SOCK_DENY = 0,	  /* EPERM, or what bpf_set_retval says */
	SOCK_PROCEED = 1, /* with the address as it is now */
};

/* errno of a connection that is refused (asm-generic/errno.h). */
#define ECONNREFUSED 111

/* Where a socket connects or sends to; that is all of the tuple that is known before it has its own address. */
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

/* Keeps a choice with the socket. Without memory for it the connection is made all the same, and getpeername tells the backend. */
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

/* Whether the peer's Service is the one that the socket asks for. */
static __always_inline bool sock_entry_is_service(const struct sock_entry *entry, const struct tuple *t)
{
	return entry->service_port == t->destination_port && address_equals(&entry->service, &t->destination);
}

/* Whether the address is that of the peer's backend. */
static __always_inline bool sock_entry_is_backend(const struct sock_entry *entry, const struct tuple *t)
{
	return entry->backend_port == t->destination_port && address_equals(&entry->backend, &t->destination);
}

/*
 * The Service that a socket asks for, if it is the socket's to translate. Loopback addresses are Services' for the node itself only.
 * A pod's source is known when its packets are: who may use a Service with source ranges, from_pod tells.
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
 * What to tell a socket that gets no backend. A pod's packets meet from_pod, which drops them for as long as there is no
 * backend here, and counts them; the node's own would leave by the default route.
 */
static __always_inline enum sock_return sock_reject(struct bpf_sock_addr *ctx, enum lb_verdict verdict)
{
	if (verdict == LB_REJECT && config_socket_errors) {
		bpf_set_retval(-ECONNREFUSED);
		return SOCK_DENY;
	}
	if ((verdict == LB_DROP || verdict == LB_TUNNEL_PORT) && bpf_get_netns_cookie(ctx) == config_host_netns)
		return SOCK_DENY;
	return SOCK_PROCEED;
}
