/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What TCP sockets asked for, whose connect got a backend's address. A memory of the socket's own, as in `peers`, is
 * two allocations and as many deferred frees for each connection, charged to whoever made the map: most of what a connect to a Service
 * would cost. So most have a place in a table, which is theirs until they are closed. Cookies are numbers in a row, so open
 * sockets rarely want the same place; who finds it taken has a memory of its own.
 */
#pragma once

#include "lib/address.h"
#include "lib/transport.h"

/* What the kernel expects of programs at sockets. */
enum socket_return {
	SOCKET_DENY = 0,    /* EPERM, or what bpf_set_retval says */
	SOCKET_PROCEED = 1, /* with the address as it is now */
};

/* The place of a socket, whether it has it or not. NULL cannot be: every index has its element. */
static __always_inline struct stream *stream_place(__u64 cookie)
{
	__u32 index = cookie % STREAMS;

	return bpf_map_lookup_elem(&streams, &index);
}

/* Keeps what a socket asked for and got; false if its place is another one's. The kernel holds the socket's lock. */
static __always_inline bool stream_keep(__u64 cookie, const struct tuple *t, const struct backend *b)
{
	struct stream *s = stream_place(cookie);

	if (!s)
		return false;
	if (s->cookie != cookie && (s->cookie || __sync_val_compare_and_swap(&s->cookie, 0, cookie)))
		return false;
	s->service = t->destination;
	s->service_port = t->destination_port;
	s->backend = b->address;
	s->backend_port = b->port;
	return true;
}

/* What the socket asked for, NULL if nothing is kept of it here. */
static __always_inline struct stream *stream_of(__u64 cookie)
{
	struct stream *s = stream_place(cookie);

	return s && s->cookie == cookie ? s : 0;
}

static __always_inline void stream_forget(__u64 cookie)
{
	struct stream *s = stream_of(cookie);

	if (unlikely(s))
		s->cookie = 0;
}

/* The last descriptor of a socket of the Internet is closed: nobody can ask for its peer any more. */
SEC("cgroup/sock_release")
int sock_release(struct bpf_sock *sk)
{
	if (sk->protocol == PROTOCOL_TCP)
		stream_forget(bpf_get_socket_cookie(sk));
	return SOCKET_PROCEED;
}
