/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Entries of TCP sockets, indexed by socket cookie. Socket storage costs two allocations and two deferred frees
 * for each connection, charged to the map's creator: most of the cost of a connect to a Service. Cookies are
 * consecutive, so open sockets rarely share a slot; a socket whose slot is taken uses `sock_storage`. sock_release
 * frees the slot.
 */
#pragma once

#include "lib/net/address.h"
#include "lib/net/transport.h"

/* The slot of a cookie, which another socket may own. */
static __always_inline struct sock_tcp_entry *sock_tcp_slot(__u64 cookie)
{
	__u32 index = cookie % SOCK_TCP_MAX;

	return bpf_map_lookup_elem(&sock_tcp, &index);
}

/* Stores what a socket connected to; false if another socket owns the slot. The kernel holds the socket lock. */
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

/* The entry of a socket, or NULL. */
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
