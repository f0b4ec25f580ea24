/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What TCP sockets asked for, whose connect got a backend's address. A memory of the socket's own, as in `sock_storage`, is
 * two allocations and as many deferred frees for each connection, charged to whoever made the map: most of what a connect to a Service
 * would cost. So most have a place in a table, which is theirs until they are closed. Cookies are numbers in a row, so open
 * sockets rarely want the same place; who finds it taken has a memory of its own.
 */
#pragma once

#include "lib/net/address.h"
#include "lib/net/transport.h"

/* The place of a socket, whether it has it or not. NULL cannot be: every index has its element. */
static __always_inline struct sock_tcp_entry *sock_tcp_slot(__u64 cookie)
{
	__u32 index = cookie % SOCK_TCP_MAX;

	return bpf_map_lookup_elem(&sock_tcp, &index);
}

/* Keeps what a socket asked for and got; false if its place is another one's. The kernel holds the socket's lock. */
static __always_inline bool sock_tcp_store(__u64 cookie, const struct tuple *t, const struct backend *b)
{
	struct sock_tcp_entry *entry = sock_tcp_slot(cookie);

	if (!entry)
		return false;
	if (entry->cookie != cookie && (entry->cookie || __sync_val_compare_and_swap(&entry->cookie, 0, cookie)))
		return false;
	entry->service = t->destination;
	entry->service_port = t->destination_port;
	entry->backend = b->address;
	entry->backend_port = b->port;
	return true;
}

/* What the socket asked for, NULL if nothing is kept of it here. */
static __always_inline struct sock_tcp_entry *sock_tcp_find(__u64 cookie)
{
	struct sock_tcp_entry *entry = sock_tcp_slot(cookie);

	return entry && entry->cookie == cookie ? entry : 0;
}

static __always_inline void sock_tcp_delete(__u64 cookie)
{
	struct sock_tcp_entry *entry = sock_tcp_find(cookie);

	if (unlikely(entry))
		entry->cookie = 0;
}
