/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What policies say about a session: who opens it, whose rules are asked, and what is allowed whatever they say. */
#pragma once

#include "session_socket.h"

/* What becomes of a packet, besides a drop with its reason, which is above 0. */
enum session_answer {
	SESSION_ALLOWED = 0,
	SESSION_UNKNOWN = -1, /* begins one, if policies allow that */
	SESSION_DOUBTED =
		-2, /* is of one that nobody saw begin, and counts as opened by the other end: the same, or that is revoked */
};

/* Which directions of a session, as who opened it has them, are governed by pods here, by the flags of a packet. `answer`: it is not from who opened it. */
static __always_inline __u32 session_parts(__u32 policed, bool answer)
{
	__u32 parts = 0;

	if (policed & POLICED_EGRESS)
		parts |= answer ? SESSION_INGRESS : SESSION_EGRESS;
	if (policed & POLICED_INGRESS)
		parts |= answer ? SESSION_EGRESS : SESSION_INGRESS;
	return parts;
}

/* Whether a reason to drop is that what governs the pod is not in force. */
static __always_inline bool session_is_closed(int reason)
{
	return reason == DROP_INGRESS_CLOSED || reason == DROP_EGRESS_CLOSED || reason == DROP_POLICY_CLOSED;
}

static __always_inline bool session_is_to_itself(const struct inquiry *q)
{
	return address_equals(&q->transport.tuple.source, &q->transport.tuple.destination);
}

/*
 * What is allowed whatever policies say: a pod reaches itself, also through its Service, and its own node, and is reached by
 * that. The stack may have given the pod another address on its way back to it (kube-proxy). Who is outside may write any source:
 * only a pod's own device says that it is the pod, and only that nobody has sent it that it is the node.
 */
static __always_inline bool session_is_free(struct __sk_buff *skb, const struct inquiry *q)
{
	const struct tuple *t = &q->transport.tuple;

	if (q->program == PROGRAM_FROM_POD)
		return session_is_to_itself(q) || policy_identity(&t->destination, POLICY_BY_ALL) == IDENTITY_NODE;
	if (q->program != PROGRAM_TO_POD)
		return false;
	return skb->ingress_ifindex == skb->ifindex ||
	       (!skb->ingress_ifindex && policy_identity(&t->source, POLICY_BY_ALL) == IDENTITY_NODE);
}

/*
 * What the rules of one end say about the other, which `set` is about: the NetworkPolicy that allows it, or below 0 the reason to
 * drop. What bears this node's address need not be the node's: the stack masquerades what it forwards (kube-proxy).
 */
static __always_inline __s64 session_ask_rules(const struct inquiry *q, __u32 set, const struct address *other,
					       __be16 port, enum drop_reason forbidden)
{
	__u32 identity;
	__s64 policy;

	if (!set)
		return 0;
	if (set == SET_CLOSED)
		return -(__s64)(forbidden == DROP_INGRESS_POLICY ? DROP_INGRESS_CLOSED : DROP_EGRESS_CLOSED);
	identity = policy_identity(other, POLICY_BY_ALL);
	if (unlikely(identity == IDENTITY_NODE))
		identity = policy_identity(other, POLICY_BY_BLOCKS);
	policy = policy_ask(set, identity, policy_what(q->transport.tuple.protocol, port, q->known), q->revision);
	return policy == POLICY_FORBIDS ? -(__s64)forbidden : policy;
}

/*
 * Asks the policies of those ends that `parts` (enum session_flag) names about a session that the packet's sender opens,
 * or its receiver with `answer`. SESSION_ALLOWED, with who allows it in q->session, or a reason to drop.
 */
SEPARATE int session_ask(struct __sk_buff *skb, __u32 parts, bool answer)
{
	struct inquiry *q = inquiry_place(); /* found, so that it has keys of maps */
	const struct address *opener, *other;
	__s64 egress = 0, ingress = 0;
	const struct policed_pod *pod;
	const struct tuple *t;
	__be16 port;

	if (!policy_tracks())
		return SESSION_ALLOWED;
	if (!q)
		return DROP_POLICY_CLOSED; /* cannot be: the index has its element */
	t = &q->transport.tuple;
	opener = answer ? &t->destination : &t->source;
	other = answer ? &t->source : &t->destination;
	port = answer ? t->source_port : t->destination_port;
	if (parts & SESSION_EGRESS) {
		pod = bpf_map_lookup_elem(&policed_pods, opener);
		egress = session_ask_rules(q, pod ? pod->egress : 0, other, port, DROP_EGRESS_POLICY);
	}
	if (parts & SESSION_INGRESS && egress >= 0) {
		pod = bpf_map_lookup_elem(&policed_pods, other);
		ingress = session_ask_rules(q, pod ? pod->ingress : 0, opener, port, DROP_INGRESS_POLICY);
	}
	if (egress < 0 || ingress < 0) {
		if (!session_is_free(skb, q))
			return egress < 0 ? -egress : -ingress;
		egress = ingress = 0;
	}
	q->session.egress = egress;
	q->session.ingress = ingress;
	return SESSION_ALLOWED;
}

/*
 * Whether it matters that the sender of a packet has accepted its connection, while the rules allow that it opens one: its receiver may not open what it likes, or
 * the sender may not be reached by all.
 */
static __always_inline bool session_matters_who(const struct inquiry *q)
{
	const struct policed_pod *pod;

	if (q->policed & POLICED_INGRESS) {
		pod = bpf_map_lookup_elem(&policed_pods, &q->transport.tuple.destination);
		if (pod && pod->egress)
			return true;
	}
	if (!(q->policed & POLICED_EGRESS))
		return false;
	pod = bpf_map_lookup_elem(&policed_pods, &q->transport.tuple.source);
	return pod && pod->ingress;
}

/*
 * Asks about a session as opened by the other end too, since a socket of who counts as its opener has accepted it. That only takes away: a
 * sender that is isolated for egress stays the opener, so that its rules are asked again when policies change. Else the other end is.
 */
static __always_inline int session_ask_accepted(struct __sk_buff *skb, struct inquiry *q)
{
	const struct policed_pod *sender = bpf_map_lookup_elem(&policed_pods, &q->transport.tuple.source);
	__u32 egress = q->session.egress, ingress = q->session.ingress;
	int reason = session_ask(skb, session_parts(q->policed, !q->answer), !q->answer);

	if (!q->answer && !(sender && sender->egress)) {
		q->answer = true;
		return reason;
	}
	q->session.egress = egress;
	q->session.ingress = ingress;
	q->denied = true;
	return reason;
}

/*
 * Asks about a datagram that its sender may not open a session with, as q->session is to say. It is an answer all the same if a socket of the receiver is
 * connected to who sends: the receiver could open that session by a datagram of its own. All rules are asked about that.
 */
static __always_inline bool session_is_awaited(struct __sk_buff *skb, const struct inquiry *q)
{
	return q->transport.tuple.protocol == PROTOCOL_UDP &&
	       session_socket(skb, SOCKETS_OF_RECEIVER) == SOCKET_OPENED &&
	       session_ask(skb, session_parts(q->policed, true), true) == SESSION_ALLOWED;
}

/*
 * Asks about a packet of no known session. With SESSION_ALLOWED, q->answer says whether the receiver has opened it. What TCP sends
 * without a SYN is of a connection that began before there were policies, or was pushed out of `sessions`, or somebody only says so. Ports prove
 * nothing, since the sender chooses them: it counts as opened by its sender, unless translation or a socket of the receiver says otherwise. If a socket of
 * who counts as its opener has accepted it, both directions have to be allowed: the first segment that a server sends may have made a NAT entry.
 */
static __always_inline int session_ask_unknown(struct __sk_buff *skb, struct inquiry *q)
{
	bool middle = !inquiry_may_open(&q->transport) && q->policed & (POLICED_EGRESS | POLICED_INGRESS);
	int socket = middle ? session_socket(skb, SOCKETS_OF_RECEIVER) : SOCKET_NONE;
	int reason;

	q->answer = q->replies ? !inquiry_is_opening(&q->transport) : socket == SOCKET_OPENED;
	q->denied = false;
	reason = session_ask(skb, session_parts(q->policed, q->answer), q->answer);
	if (reason != SESSION_ALLOWED) {
		if (q->answer)
			return reason;
		q->answer = session_is_awaited(skb, q);
		return q->answer ? SESSION_ALLOWED : reason;
	}
	if (!q->answer)
		socket = middle && session_matters_who(q) ? session_socket(skb, SOCKETS_OF_SENDER) : SOCKET_NONE;
	return socket == SOCKET_ACCEPTED ? session_ask_accepted(skb, q) : SESSION_ALLOWED;
}

/*
 * Asks about an ICMP error that quotes a packet of no known session: as good as that if a socket of the receiver has sent it. Without one
 * the quotation proves nothing, and the error is what its sender sends, of a protocol without ports.
 */
static __always_inline int session_ask_unknown_error(struct __sk_buff *skb, struct inquiry *q)
{
	struct tuple *t = &q->transport.tuple;
	int socket = session_socket(skb, SOCKETS_OF_RECEIVER);
	bool answer = socket == SOCKET_OPENED;

	if (socket == SOCKET_NONE) {
		t->source = q->sender;
		t->source_port = t->destination_port = 0;
		t->protocol = address_is_ipv4(&t->destination) ? PROTOCOL_ICMP : PROTOCOL_ICMPV6;
		q->known = POLICY_KNOWN_PROTOCOL;
	}
	return session_ask(skb, session_parts(q->policed, answer), answer);
}
