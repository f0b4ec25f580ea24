/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who initiated an unknown connection, by the sockets of the pods. Sockets are the pod's own, but an attacker can
 * create any (TCP_REPAIR). A receiver gains nothing by lying: the verdict is the same as for a SYN that it could
 * send. A sender's socket can only restrict it.
 */
#pragma once

#include "lib/fwd/endpoint.h"
#include "lib/lb/backend.h"
#include "lib/policy/policy_context.h"

/* The role of a pod's socket in a connection. */
enum socket_role {
	SOCKET_ROLE_UNKNOWN = 0, /* no socket, no local pod, or a virtual machine in the pod */
	SOCKET_ROLE_CLIENT = 1,	 /* the pod initiated it */
	SOCKET_ROLE_SERVER = 2,	 /* the pod accepted it */
};

/* Whose socket to look up. */
enum socket_side {
	SOCKETS_OF_RECEIVER = 0,
	SOCKETS_OF_SENDER = 1,
};

/* Socket states (include/net/tcp_states.h); 0: no socket. */
enum socket_state {
	SOCKET_ESTABLISHED = 1, /* of UDP: connected */
	SOCKET_CLOSE = 7,
	SOCKET_LISTEN = 10,
	SOCKET_NEW_SYN_RECV = 12, /* a SYN without ACK yet */
	SOCKET_STATES = 0xff,
	SOCKET_BACKLOG = 1 << 8, /* flag: has a listen backlog */
};

/* Kernel type; the offset is relocated at load. */
struct sock {
	__u32 sk_max_ack_backlog;
} __attribute__((preserve_access_index));

/*
 * Whether a TCP socket has the backlog of listen(). An accepted socket is a copy of the listener, and keeps it
 * when the listener is closed. A connecting socket has none.
 */
static __always_inline bool socket_has_backlog(struct bpf_sock *s)
{
	const struct sock *full = (void *)bpf_skc_to_tcp_sock(s);

	return full && full->sk_max_ack_backlog;
}

/*
 * The state of the socket in a pod that receives packets of this tuple, also a listener or an unconnected UDP
 * socket; 0 if there is none.
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
 * Likewise for the pod with address `own`, from a remote port. Port 0 finds only listeners. The tuple is in
 * scratch memory: the stack is full.
 */
static __always_inline __u32 socket_state_of(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
					     const struct address *own, __be16 own_port, const struct address *other,
					     __be16 port, __u64 netns, __u8 protocol)
{
	__u32 size = transport_lookup_tuple(tuple, address_is_ipv4(own), other, port, own, own_port);

	return socket_lookup(skb, tuple, size, netns, protocol);
}

/*
 * The role by the socket's state. `server` is the state of the socket that accepts connections at its port. A UDP
 * server may connect a socket to each client, so with an unconnected socket at the port the role is unknown.
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
 * Whether an untranslated packet claims to be from a Service: the pod's packets to it are translated, and so are the
 * replies, so no socket awaits this one.
 */
static __always_inline bool socket_awaits_backend(const struct policy_context *pc)
{
	const struct tuple *t = &pc->transport.tuple;
	struct frontend f = {.address = t->source, .port = t->source_port, .protocol = t->protocol};

	return config_services && !pc->nat_reply && service_serves_pods(&f);
}

/*
 * The role of one side's socket for the packet in `policy_scratch`, or the packet that an ICMP error quotes. A UDP
 * socket that is connected to the other end is the client.
 */
GLOBAL_FN int socket_role(struct __sk_buff *skb, __u32 side)
{
	struct policy_context *pc =
		policy_context_get(); /* looked up again: map values may be keys, arguments may not */
	const struct address *own, *other;
	const struct endpoint *e;
	__be16 own_port, port;
	__u8 protocol;
	__u32 state;
	int role;

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
	role = socket_role_of(protocol, state,
			      socket_state_of(skb, &pc->socket, own, own_port, other, 0, e->netns - 1, protocol));
	return role == SOCKET_ROLE_CLIENT && side == SOCKETS_OF_RECEIVER && socket_awaits_backend(pc)
		       ? SOCKET_ROLE_UNKNOWN
		       : role;
}
