/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An entry of the NAT table: one direction of a translated connection, and the key of the other direction. */
#pragma once

#include "config.h"
#include "lib/net/address.h"
#include "lib/net/transport.h"
#include "lib/net/verdict.h"

#define NSEC_PER_SEC 1000000000ULL

/*
 * One more enum nat_flag: packets of both directions may arrive at an uplink, so XDP forwards them. It is no value of that enum, as
 * versions that do not know it can use the entries all the same.
 */
#define NAT_WIRE (1 << 7)

/* CLOCK_MONOTONIC in ns, to the kernel's tick. */
static __always_inline __u64 ktime_coarse(void)
{
	return bpf_ktime_get_coarse_ns();
}

/*
 * A flow without TCP's flags is a stream once it has packets of both directions so long after its first one, in the units of
 * nat_entry.created: the 2 s of Linux (net/netfilter/nf_conntrack_proto_udp.c).
 */
#define NAT_STREAM_AGE 8

/* What nat_entry.created counts. */
static __always_inline __u16 nat_clock(__u64 now)
{
	return now >> 28;
}

/* Notes that a direction has a packet now. `born` wraps around in 4.9 hours; by then the connection is a stream or over. */
static __always_inline void nat_touch(struct nat_entry *entry, __u8 protocol, __u64 now)
{
	entry->seen = now;
	if (!transport_has_flags(protocol) && (__u16)(nat_clock(now) - entry->created) >= NAT_STREAM_AGE)
		entry->flags |= NAT_STREAM;
}

/* The key of the other direction: its packets come from where this one's go to after translation. */
static __always_inline void nat_reply_key(struct tuple *key, const struct nat_entry *to, __u8 protocol)
{
	key->source = to->destination;
	key->destination = to->source;
	key->source_port = to->destination_port;
	key->destination_port = to->source_port;
	key->protocol = protocol;
	key->padding[0] = key->padding[1] = key->padding[2] = 0;
}

/* Whether packets that get *to are answered by packets that get `t`'s addresses and ports back: two halves of one connection. */
static __always_inline bool nat_is_reply_of(const struct nat_entry *to, const struct tuple *t)
{
	return to->source_port == t->destination_port && to->destination_port == t->source_port &&
	       address_equals(&to->source, &t->destination) && address_equals(&to->destination, &t->source);
}

/* Removes both directions, wherever they are. */
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

/* What the other direction of a connection that begins gets: the way back from *to to what `t` had. */
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

/* A connection that is to begin: filled by the caller but for `other` and `back`. Too large for the stack of a long call chain. */
struct nat_new {
	struct tuple key;      /* of the first packet */
	struct nat_entry to;   /* what it gets; nat_alloc sets seen and packets */
	struct tuple other;    /* set by nat_alloc: the key of the answers, */
	struct nat_entry back; /* and what they get */
};

enum nat_alloc_result {
	NAT_ALLOC_OK = 0,
	NAT_ALLOC_TAKEN, /* another connection has the answers' key: another port is needed, or DROP_NAT_PORTS_EXHAUSTED */
	NAT_ALLOC_FULL, /* DROP_NAT_TABLE_FULL */
};
