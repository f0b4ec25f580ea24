/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What two nodes send each other from their own addresses, where both encrypt that too (--encrypt-nodes). The kernel's
 * routing rules lead it into the tunnel; here plaintext is dropped. Exceptions depend on ports, so each packet is
 * compared with them.
 */
#pragma once

#include "config.h"
#include "lib/fwd/flow_cache.h"
#include "lib/fwd/route.h"
#include "lib/net/arp.h"

/* TCP flags (RFC 9293, 3.1). */
#define NODES_TCP_SYN 0x02
#define NODES_TCP_ACK 0x10

/* Whether `own` is an address of this node, and `other` one of a node that encrypts its own packets too. */
GLOBAL_FN bool nodes_encrypt(const struct address *own, const struct address *other)
{
	const struct route *r;

	if (!own || !other)
		return false;
	r = route_of_host(other);
	if (!r || r->kind != ROUTE_ENCRYPTED || !r->resolved)
		return false;
	r = route_of_host(own);
	return r && r->kind == ROUTE_CLUSTER;
}

/* The start of a TCP or UDP header. */
struct nodes_transport {
	__be16 source, destination;
	__u8 numbers[9];
	__u8 flags; /* of TCP */
};

/* Whether a protocol passes as a whole. */
static __always_inline bool nodes_pass_protocol(__u8 protocol)
{
	for (int i = 0; i < NODES_EXCEPT_MAX && config_nodes_except[i]; i++)
		if (config_nodes_except[i] == (__u32)protocol << 16)
			return true;
	return false;
}

/*
 * Whether a packet of TCP or UDP passes by one of its ports. UDP, and a new TCP connection, pass by the destination only:
 * from a port like that of a server anybody may reach all others.
 */
static __always_inline bool nodes_pass_ports(__u8 protocol, const struct nodes_transport *t)
{
	__u32 to = (__u32)protocol << 16 | bpf_ntohs(t->destination);
	__u32 from = (__u32)protocol << 16 | bpf_ntohs(t->source);
	bool begins = protocol != PROTOCOL_TCP || (t->flags & (NODES_TCP_SYN | NODES_TCP_ACK)) == NODES_TCP_SYN;

	for (int i = 0; i < NODES_EXCEPT_MAX && config_nodes_except[i]; i++)
		if (config_nodes_except[i] == to || (config_nodes_except[i] == from && !begins))
			return true;
	return false;
}

/*
 * Whether a packet between two nodes that encrypt may be in plaintext: the tunnel's own outer packets, and what has to
 * arrive without keys. Later fragments have no ports, and do not pass by any; neither does a first one alone.
 */
static __noinline bool nodes_pass(const struct packet *p)
{
	struct nodes_transport t = {};
	__u32 at;
	long failed;
	__be16 fragment = 0;
	__u8 protocol = 0;

	if (p->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(p->skb, ETH_HLEN + offsetof(struct iphdr, protocol), &protocol, 1) ||
		    bpf_skb_load_bytes(p->skb, ETH_HLEN + offsetof(struct iphdr, frag_off), &fragment, 2))
			return false;
		at = ETH_HLEN + sizeof(struct iphdr);
	} else {
		if (bpf_skb_load_bytes(p->skb, ETH_HLEN + offsetof(struct ipv6hdr, nexthdr), &protocol, 1))
			return false;
		at = ETH_HLEN + sizeof(struct ipv6hdr);
	}
	if (nodes_pass_protocol(protocol))
		return true;
	if (fragment & bpf_htons(0x3fff) || p->options)
		return false;
	if (protocol == PROTOCOL_ICMPV6)
		return nd_is_of_neighbours(p->skb);
	if (protocol == PROTOCOL_TCP)
		failed = bpf_skb_load_bytes(p->skb, at, &t, sizeof(t));
	else if (protocol == PROTOCOL_UDP)
		failed = bpf_skb_load_bytes(p->skb, at, &t, 4);
	else
		return false;
	return !failed && nodes_pass_ports(protocol, &t);
}

/* Instead of a scope: the packet has to be dropped. */
#define NODES_PLAINTEXT -1U

/*
 * The scope of the flow cache that a packet at an uplink belongs to: SCOPE_NODES, whose packets are compared one by one,
 * between two nodes that encrypt; else 0. NODES_PLAINTEXT: it is between two such nodes, and not excepted. `where` is the
 * place without this scope, and `sends` says that this node sends the packet. Called with config_encrypt_nodes only.
 */
static __noinline __u32 nodes_scope(struct packet *p, const struct flow_cache_entry *fc, __u32 where, bool sends)
{
	const struct address *own = sends ? &p->source : &p->destination, *other = sends ? &p->destination : &p->source;
	__u32 now = flow_cache_generation();

	if (flow_cache_hit(fc, &p->source, &p->destination, where, now))
		return 0;
	if (!flow_cache_hit(fc, &p->source, &p->destination, where | SCOPE_NODES, now) && !nodes_encrypt(own, other))
		return 0;
	return nodes_pass(p) ? SCOPE_NODES : NODES_PLAINTEXT;
}
