/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Source ports for SNAT. The range is divided into blocks; each owner has one, by a hash of its id. An owner takes
 * free ports of its own block first, then of any block. So each owner can use ports of its block towards each
 * destination: what pods borrow returns when a pod needs it, and external clients borrow no reserved ports.
 */
#pragma once

#include "lib/lb/service.h"
#include "lib/nat/nat_slots.h"

/* Minimum ports of a block, and maximum number of blocks. */
#define NAT_BLOCK_PORTS 64
#define NAT_BLOCKS_MAX 256

/* Ports tried for a connection. */
#define NAT_PORT_ATTEMPTS 64

/*
 * Which NAT entry with the same reply tuple may be evicted. An entry of the same connection or an expired one
 * always may.
 */
enum nat_evict {
	NAT_EVICT_NONE = 0,
	NAT_EVICT_CLOSED, /* a closed one */
	NAT_EVICT_SHARE, /* also a brief one: of the same owner, of a borrower of the port, or of an owner that holds more */
	NAT_EVICT_STREAMS,   /* also an established one of the latter two, for a pod */
	NAT_EVICT_UNREPLIED, /* an unreplied or closed one */
};

static __always_inline __u32 nat_port_count(void)
{
	return (__u32)config_nat_last - config_nat_first + 1;
}

static __always_inline __u32 nat_blocks(void)
{
	__u32 blocks = nat_port_count() / NAT_BLOCK_PORTS;

	if (!blocks)
		return 1;
	return blocks < NAT_BLOCKS_MAX ? blocks : NAT_BLOCKS_MAX;
}

static __always_inline __u32 nat_block_size(void)
{
	return nat_port_count() / nat_blocks();
}

/* The first port of an owner's block, relative to config_nat_first. */
static __always_inline __u32 nat_block(__u32 owner)
{
	return (owner * HASH_MULTIPLIER >> 16) % nat_blocks() * nat_block_size();
}

/* Whether a port (network order) is in an owner's block. */
static __always_inline bool nat_port_in_block(__be16 port, __u32 owner)
{
	__u32 offset = (__u32)bpf_ntohs(port) - config_nat_first - nat_block(owner);

	return offset < nat_block_size();
}

/* Whether a port (network order) is in the SNAT range. */
static __always_inline bool nat_port_in_range(__be16 port)
{
	__u16 host = bpf_ntohs(port);

	return host >= config_nat_first && host <= config_nat_last;
}

/*
 * The first ports of each block, which external clients of other blocks do not borrow. New external connections evict
 * no established ones (nat_port_may_evict), so those of one client must leave ports to the others.
 */
static __always_inline __u32 nat_block_reserved(__u32 owner)
{
	return owner & NAT_OWNER_EXTERNAL ? nat_block_size() / 4 : 0;
}

/* Whether a new connection may keep its source port (network order) if that is free. */
GLOBAL_FN bool nat_port_may_keep(__be16 port, __u32 owner)
{
	__u32 offset = (__u32)bpf_ntohs(port) - config_nat_first;

	return offset < nat_port_count() &&
	       (offset % nat_block_size() >= nat_block_reserved(owner) || nat_port_in_block(port, owner));
}

/*
 * What attempt number `attempt` may evict. The first quarter of the attempts looks for free ports in the owner's
 * block, the second in the whole range, the rest in the block again. A server keeps a closed connection in
 * TIME-WAIT for a minute and rejects a new one of the same tuple whose sequence numbers and timestamps are not
 * higher (RFC 6191), as those of another client may be. So closed entries are evicted only where free ports are
 * rare.
 */
static __always_inline enum nat_evict nat_port_evicts(__u32 attempt)
{
	if (attempt < NAT_PORT_ATTEMPTS / 2)
		return NAT_EVICT_NONE;
	if (attempt < NAT_PORT_ATTEMPTS / 4 * 3)
		return NAT_EVICT_CLOSED;
	return attempt < NAT_PORT_ATTEMPTS / 8 * 7 ? NAT_EVICT_SHARE : NAT_EVICT_STREAMS;
}

/*
 * The port of attempt number `attempt`: pseudorandom at first, then consecutive, so that a small block is searched
 * completely. Deterministic for a tuple: a client that reuses its port gets the same port again.
 */
GLOBAL_FN __be16 nat_port_candidate(const struct tuple *key, __u32 owner, __u32 attempt)
{
	__u32 start, block = nat_block(owner), ports = nat_block_size(), reserved = nat_block_reserved(owner), skip = 0;

	if (!key)
		return 0;
	start = service_hash(key);
	if (reserved && attempt >= NAT_PORT_ATTEMPTS / 8 && attempt < NAT_PORT_ATTEMPTS / 4) {
		ports = reserved; /* all others may be borrowed */
	} else if (attempt < NAT_PORT_ATTEMPTS / 2) {
		/* Multiples of one hash would not do: in steps of nearly 2^18 they are all in one block. */
		start = service_hash_word(start, attempt);
	}
	start += attempt;
	if (attempt >= NAT_PORT_ATTEMPTS / 4 && attempt < NAT_PORT_ATTEMPTS / 2) {
		block = (start >> 16) % nat_blocks() * nat_block_size();
		skip = reserved;
		ports -= reserved;
	}
	return bpf_htons(config_nat_first + block + skip + start % ports);
}

/*
 * Whether a new connection without a free port may evict the owner of the reply tuple *taken. A connection that
 * kept its own source port counts as in its block. The source of an external client may be forged until its
 * handshake ends, and forged sources own every block, so a new external connection evicts no established one, and
 * any pending one of another external client.
 */
GLOBAL_FN bool nat_port_may_evict(const struct nat_new *fresh, const struct nat_entry *taken, enum nat_evict who,
				  bool pending)
{
	bool brief, streams;
	__be16 port;
	__u32 owner;
	int more;

	if (!fresh || !taken)
		return false;
	port = fresh->to.source_port;
	owner = fresh->to.owner;
	brief = nat_is_brief(&fresh->reply_tuple, taken, pending);
	streams = who == NAT_EVICT_STREAMS && !(owner & NAT_OWNER_EXTERNAL);
	if (taken->owner == owner)
		return brief;
	if (!nat_port_in_block(port, owner))
		return false;
	if (pending && taken->owner & owner & NAT_OWNER_EXTERNAL)
		return brief;
	if (!nat_port_in_block(port, taken->owner) && taken->destination_port != port)
		return brief || streams;
	more = nat_owner_exceeds(taken->owner, owner, pending);
	return more > 0 && (brief || (streams && more > NAT_OWNER_SMALL));
}
