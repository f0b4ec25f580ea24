/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who has opened a connection that is not among the sessions, by the sockets of the pods that it is of. Only a pod itself makes its sockets, but
 * an attacker makes itself what it likes (TCP_REPAIR). So the receiver is believed: one that lies gains nothing, since what it says is
 * judged by all rules as the SYN would be that it could have sent instead. The sender is believed only what takes something away from it.
 */
#pragma once

#include "lib/fwd/endpoint.h"
#include "lib/policy/policy_context.h"

/* What a pod's sockets say of a connection. */
enum socket_role {
	SOCKET_ROLE_UNKNOWN = 0, /* that there is none, or nobody can tell: no pod here, or a virtual machine in it */
	SOCKET_ROLE_CLIENT = 1,	 /* that the pod has opened it */
	SOCKET_ROLE_SERVER = 2,	 /* that it was opened to the pod */
};

/* Whose sockets are asked for. */
enum socket_side {
	SOCKETS_OF_RECEIVER = 0,
	SOCKETS_OF_SENDER = 1,
};

/* States of sockets (include/net/tcp_states.h); 0 is none. */
enum socket_state {
	SOCKET_ESTABLISHED = 1, /* of UDP: is connected */
	SOCKET_CLOSE = 7,
	SOCKET_LISTEN = 10,
	SOCKET_NEW_SYN_RECV = 12, /* has got a SYN, and no acknowledgment yet */
	SOCKET_STATES = 0xff,
	SOCKET_BACKLOG = 1 << 8, /* beside the state: has a backlog */
};

/* What is read of the kernel's own; its offset there is found at load. */
struct sock {
	__u32 sk_max_ack_backlog;
} __attribute__((preserve_access_index));

/*
 * Whether a TCP socket has the backlog that listen() sets. The kernel makes an accepted socket as a copy of the one that listens, so it has that too, also
 * when nobody listens any more. One that connects has none.
 */
static __always_inline bool socket_has_backlog(struct bpf_sock *s)
{
	const struct sock *full = (void *)bpf_skc_to_tcp_sock(s);

	return full && full->sk_max_ack_backlog;
}

/*
 * The state of the socket in a pod that gets packets with this tuple, which may be one that listens, or of UDP is connected to nobody; 0: there is
 * none.
 */
static __always_inline __u32 socket_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 size, __u64 netns,
					   __u8 protocol)
{
	struct bpf_sock *s;
	__u32 state;

	if (protocol == PROTOCOL_UDP) {
		s = bpf_sk_lookup_udp(skb, tuple, size, netns, 0);
		if (!s)
			return 0;
		state = s->state;
		bpf_sk_release(s);
		return state;
	}
	s = bpf_skc_lookup_tcp(skb, tuple, size, netns, 0);
	if (!s)
		return 0;
	state = s->state;
	if (socket_has_backlog(s))
		state |= SOCKET_BACKLOG;
	bpf_sk_release(s);
	return state;
}

/*
 * The same of the pod that has `own`, from a port of the other end: 0, from which nobody connects, finds who listens. The tuple is in memory of the CPU's own,
 * since the stack has no room for it.
 */
static __always_inline __u32 socket_state_of(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
					     const struct address *own, __be16 own_port, const struct address *other,
					     __be16 port, __u64 netns, __u8 protocol)
{
	if (address_is_ipv4(own)) {
		tuple->ipv4.saddr = other->word[3];
		tuple->ipv4.daddr = own->word[3];
		tuple->ipv4.sport = port;
		tuple->ipv4.dport = own_port;
		return socket_lookup(skb, tuple, sizeof(tuple->ipv4), netns, protocol);
	}
	__builtin_memcpy(tuple->ipv6.saddr, other, sizeof(tuple->ipv6.saddr));
	__builtin_memcpy(tuple->ipv6.daddr, own, sizeof(tuple->ipv6.daddr));
	tuple->ipv6.sport = port;
	tuple->ipv6.dport = own_port;
	return socket_lookup(skb, tuple, sizeof(tuple->ipv6), netns, protocol);
}

/*
 * What the state of a pod's socket for a connection says; `server` is that of the socket at its port that gets what others begin. A server of UDP may connect a
 * socket to each of its clients: where there is one that is connected to nobody, who has begun is not known.
 */
static __always_inline int socket_role_of(__u8 protocol, __u32 state, __u32 server)
{
	if (protocol == PROTOCOL_UDP)
		return state == SOCKET_ESTABLISHED && !server ? SOCKET_ROLE_CLIENT : SOCKET_ROLE_UNKNOWN;
	switch (state & SOCKET_STATES) {
	case 0:
	case SOCKET_CLOSE:
	case SOCKET_LISTEN:
		return SOCKET_ROLE_UNKNOWN;
	case SOCKET_NEW_SYN_RECV:
		return SOCKET_ROLE_SERVER;
	}
	if (state & SOCKET_BACKLOG || (server & SOCKET_STATES) == SOCKET_LISTEN)
		return SOCKET_ROLE_SERVER;
	return SOCKET_ROLE_CLIENT;
}

/*
 * What the sockets of one side say of the packet in `policy_scratch`, or of the one that an ICMP error quotes: enum socket_role. One of UDP that is connected
 * to the other end says that the pod has opened it.
 */
GLOBAL_FN int socket_role(struct __sk_buff *skb, __u32 side)
{
	struct policy_context *pc = policy_context_get(); /* found, so that it has keys of maps */
	const struct address *own, *other;
	const struct endpoint *e;
	__be16 own_port, port;
	__u8 protocol;
	__u32 state;

	if (!config_policy || !pc)
		return SOCKET_ROLE_UNKNOWN;
	protocol = pc->transport.tuple.protocol;
	if (protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP)
		return SOCKET_ROLE_UNKNOWN;
	own = side == SOCKETS_OF_SENDER ? &pc->transport.tuple.source : &pc->transport.tuple.destination;
	own_port = side == SOCKETS_OF_SENDER ? pc->transport.tuple.source_port : pc->transport.tuple.destination_port;
	other = side == SOCKETS_OF_SENDER ? &pc->destination_before_nat : &pc->source_after_nat;
	port = side == SOCKETS_OF_SENDER ? pc->destination_port_before_nat : pc->source_port_after_nat;
	e = bpf_map_lookup_elem(&endpoints, own);
	if (!e || !e->netns)
		return SOCKET_ROLE_UNKNOWN;
	state = socket_state_of(skb, &pc->socket, own, own_port, other, port, e->netns - 1, protocol);
	if (!state || state == SOCKET_CLOSE || state & SOCKET_BACKLOG)
		return socket_role_of(protocol, state, 0);
	return socket_role_of(protocol, state,
			      socket_state_of(skb, &pc->socket, own, own_port, other, 0, e->netns - 1, protocol));
}
