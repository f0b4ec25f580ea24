/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which ports of the node a connection may get. The range is in blocks, and each owner (nat_share.h) has one, by a hash of its id. It takes ports of
 * its own block first, then any that is free. So it has a block of ports towards each destination whatever others do: who has taken ports
 * of another's block has to give them back where that one finds no other.
 */
#pragma once

#include "lib/nat/nat_slots.h"
#include "lib/lb/service.h"

/* A block has at least so many ports, and there are at most so many blocks. */
#define NAT_BLOCK_PORTS 64
#define NAT_BLOCKS_MAX 256

/* How many ports are tried before giving up. */
#define NAT_PORT_ATTEMPTS 64

/* Which other connection, that has the key of the answers, gives way. One of the same ends does in any case, and one that has expired. */
enum nat_evict {
	NAT_EVICT_NONE = 0,
	NAT_EVICT_CLOSED, /* one that has ended */
	NAT_EVICT_SHARE, /* a brief one of the same owner, of who is not at home in the port's block, or of who holds more */
	NAT_EVICT_STREAMS,   /* also a lasting one of the latter two */
	NAT_EVICT_UNREPLIED, /* one that nobody has answered yet, or that has ended */
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

/* The first port of an owner's block, counted from config_nat_first. */
static __always_inline __u32 nat_block(__u32 owner)
{
	return (owner * HASH_MULTIPLIER >> 16) % nat_blocks() * nat_block_size();
}

/* Whether a port, in network order, is of an owner's block. */
static __always_inline bool nat_port_in_block(__be16 port, __u32 owner)
{
	__u32 offset = (__u32)bpf_ntohs(port) - config_nat_first - nat_block(owner);

	return offset < nat_block_size();
}

/* Whether a port is one that translation may give, in network order. */
static __always_inline bool nat_port_in_range(__be16 port)
{
	__u16 host = bpf_ntohs(port);

	return host >= config_nat_first && host <= config_nat_last;
}

/*
 * Who gives way to attempt number `attempt`: a quarter of them look for a free port in the owner's block, the next one in the whole range, the
 * others again in the block. A server may remember for a minute the connection that it has ended, by addresses and ports (TIME-WAIT), and takes no
 * new one at once whose sequence numbers and timestamps are not behind it (RFC 6191); those of another client's port may be anywhere. So ended ones
 * give way only where free ports are rare.
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
 * The port that attempt number `attempt` takes: at first any, then neighbours, so that a small block is tried whole. The same for packets of the same
 * ends, so who opens a connection from the same port again gets the same one, which its server expects of it.
 */
static __always_inline __be16 nat_port_candidate(const struct tuple *key, __u32 owner, __u32 attempt)
{
	__u32 start = service_hash(key);

	if (attempt < NAT_PORT_ATTEMPTS / 2)
		start *= 2 * attempt + 1; /* odd: as random as start */
	start += attempt;
	if (attempt >= NAT_PORT_ATTEMPTS / 4 && attempt < NAT_PORT_ATTEMPTS / 2)
		return bpf_htons(config_nat_first + start % nat_port_count());
	return bpf_htons(config_nat_first + nat_block(owner) + start % nat_block_size());
}

/*
 * Whether a connection, whose answers *taken is for, has to give its port to a new one that finds no other. Who has kept the port that it came
 * from is at home there, too.
 */
static __always_inline bool nat_port_may_evict(const struct nat_new *new, const struct nat_entry *taken,
					       enum nat_evict who, bool pending)
{
	__be16 port = new->to.source_port;
	__u32 owner = new->to.owner;
	bool brief = nat_is_brief(&new->other, taken, pending);
	int more;

	if (taken->owner == owner)
		return brief;
	if (!nat_port_in_block(port, owner))
		return false;
	if (!nat_port_in_block(port, taken->owner) && taken->destination_port != port)
		return brief || who == NAT_EVICT_STREAMS;
	more = nat_owner_exceeds(taken->owner, owner, pending);
	return more > 0 && (brief || (who == NAT_EVICT_STREAMS && more > NAT_OWNER_SMALL));
}
