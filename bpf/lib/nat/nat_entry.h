/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NAT entries: one for each direction of a translated connection. Shared by tc and XDP. */
#pragma once

#include "config.h"
#include "lib/net/address.h"
#include "lib/net/transport.h"
#include "lib/net/verdict.h"

#define NSEC_PER_SEC 1000000000ULL

/* CLOCK_MONOTONIC in ns, at the resolution of a jiffy. */
static __always_inline __u64 ktime_coarse(void)
{
	return bpf_ktime_get_coarse_ns();
}

/*
 * Without TCP flags, a flow becomes a stream when both directions have packets this long after the first one, in
 * units of nat_entry.created. 2 s as in Linux (net/netfilter/nf_conntrack_proto_udp.c).
 */
#define NAT_STREAM_AGE 8

/* The time in units of nat_entry.created. */
static __always_inline __u16 nat_clock(__u64 now)
{
	return now >> 28;
}

/* Records a packet. `created` wraps after 4.9 hours; by then the connection is a stream or expired. */
static __always_inline void nat_touch(struct nat_entry *entry, __u8 protocol, __u64 now)
{
	entry->seen = now;
	if (!transport_has_flags(protocol) && (__u16)(nat_clock(now) - entry->created) >= NAT_STREAM_AGE)
		entry->flags |= NAT_STREAM;
}

/* The reply tuple: packets of the other direction come from where this direction's packets go after NAT. */
static __always_inline void nat_reply_key(struct tuple *key, const struct nat_entry *to, __u8 protocol)
{
	key->source = to->destination;
	key->destination = to->source;
	key->source_port = to->destination_port;
	key->destination_port = to->source_port;
	key->protocol = protocol;
	key->padding[0] = key->padding[1] = key->padding[2] = 0;
}

/* Whether *to is the other direction of `t`: both entries belong to one connection. */
static __always_inline bool nat_is_reply_of(const struct nat_entry *to, const struct tuple *t)
{
	return to->source_port == t->destination_port && to->destination_port == t->source_port &&
	       address_equals(&to->source, &t->destination) && address_equals(&to->destination, &t->source);
}

/* Deletes both directions from both tables. */
GLOBAL_FN int nat_delete(const struct tuple *t, const struct nat_entry *to)
{
	struct tuple key;

	if (!t || !to)
		return 0;
	nat_reply_key(&key, to, t->protocol);
	bpf_map_delete_elem(&nat, &key);
	bpf_map_delete_elem(&nat_pending, &key);
	key = *t;
	bpf_map_delete_elem(&nat, &key);
	bpf_map_delete_elem(&nat_pending, &key);
	return 0;
}

/* The entry of the reply direction, which restores the tuple `t`. */
static __always_inline void nat_reply_value(struct nat_entry *back, const struct tuple *t, const struct nat_entry *to)
{
	back->source = t->destination;
	back->destination = t->source;
	back->source_port = t->destination_port;
	back->destination_port = t->source_port;
	back->service = to->service;
	back->seen = to->seen;
	back->flags = to->flags & (NAT_UNCHANGED | NAT_WIRE);
	back->packets = 0;
	back->created = to->created;
	back->owner = to->owner;
}

/* A connection to be created. The caller fills `key` and `to`. Too large for the stack. */
struct nat_new {
	struct tuple key;	  /* tuple of the first packet */
	struct nat_entry to;	  /* its rewrite; nat_alloc sets seen, packets and created */
	struct tuple reply_tuple; /* reply tuple, set by nat_alloc */
	struct nat_entry reply;	  /* its rewrite, set by nat_alloc */
};

enum nat_alloc_result {
	NAT_ALLOC_OK = 0,
	NAT_ALLOC_TAKEN, /* the reply tuple belongs to another connection: try another port */
	NAT_ALLOC_FULL,	 /* DROP_NAT_TABLE_FULL */
};
