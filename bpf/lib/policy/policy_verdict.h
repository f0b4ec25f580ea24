/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What policies say about a session: who opens it, whose rules are asked, and what is allowed whatever they say. */
#pragma once

#include "lib/policy/socket_role.h"

/* What becomes of a packet, besides a drop with its reason, which is above 0. */
enum policy_result {
	POLICY_ALLOWED = 0,
	POLICY_NEW = -1, /* begins one, if policies allow that */
	POLICY_INITIATOR_UNKNOWN =
		-2, /* is of one that nobody saw begin, and counts as opened by the other end: the same, or that is revoked */
};

/* Which directions of a session, as who opened it has them, are governed by pods here, by the flags of a packet. `answer`: it is not from who opened it. */
static __always_inline __u32 policy_directions(__u32 enforce, bool reply)
{
	__u32 directions = 0;

	if (enforce & ENFORCE_EGRESS)
		directions |= reply ? CT_INGRESS : CT_EGRESS;
	if (enforce & ENFORCE_INGRESS)
		directions |= reply ? CT_EGRESS : CT_INGRESS;
	return directions;
}

/* Whether a reason to drop is that what governs the pod is not in force. */
static __always_inline bool policy_is_pending(int reason)
{
	return reason == DROP_INGRESS_POLICY_PENDING || reason == DROP_EGRESS_POLICY_PENDING ||
	       reason == DROP_INTERNAL_ERROR;
}

static __always_inline bool policy_is_self(const struct policy_context *pc)
{
	return address_equals(&pc->transport.tuple.source, &pc->transport.tuple.destination);
}

/*
 * What is allowed whatever policies say: a pod reaches itself, also through its Service, and its own node, and is reached by
 * that. The stack may have given the pod another address on its way back to it (kube-proxy). Who is outside may write any source:
 * only a pod's own device says that it is the pod, and only that nobody has sent it that it is the node.
 */
static __always_inline bool policy_is_exempt(struct __sk_buff *skb, const struct policy_context *pc)
{
	const struct tuple *t = &pc->transport.tuple;

	if (pc->program == PROGRAM_FROM_POD)
		return policy_is_self(pc) || policy_identity(&t->destination, IDENTITY_BY_ALL) == IDENTITY_NODE;
	if (pc->program != PROGRAM_TO_POD)
		return false;
	return skb->ingress_ifindex == skb->ifindex ||
	       (!skb->ingress_ifindex && policy_identity(&t->source, IDENTITY_BY_ALL) == IDENTITY_NODE);
}

/*
 * What the rules of one end say about the other, which `set` is about: the NetworkPolicy that allows it, or below 0 the reason to
 * drop. What bears this node's address need not be the node's: the stack masquerades what it forwards (kube-proxy).
 */
static __always_inline __s64 policy_rules(const struct policy_context *pc, __u32 set, const struct address *other,
					  __be16 port, enum drop_reason forbidden)
{
	__u32 identity;
	__s64 policy;

	if (!set)
		return 0;
	if (set == POLICY_SET_PENDING)
		return -(__s64)(forbidden == DROP_INGRESS_POLICY ? DROP_INGRESS_POLICY_PENDING
								 : DROP_EGRESS_POLICY_PENDING);
	identity = policy_identity(other, IDENTITY_BY_ALL);
	if (unlikely(identity == IDENTITY_NODE))
		identity = policy_identity(other, IDENTITY_BY_CIDRS);
	policy = policy_allows(set, identity, policy_proto_port(pc->transport.tuple.protocol, port, pc->known),
			       pc->revision);
	return policy == POLICY_DENIED ? -(__s64)forbidden : policy;
}

/*
 * Asks the policies of those ends that `parts` (enum ct_flag) names about a session that the packet's sender opens,
 * or its receiver with `answer`. POLICY_ALLOWED, with who allows it in pc->session, or a reason to drop.
 */
GLOBAL_FN int policy_verdict(struct __sk_buff *skb, __u32 directions, bool reply)
{
	struct policy_context *pc = policy_context_get(); /* found, so that it has keys of maps */
	const struct address *initiator, *other;
	__s64 egress = 0, ingress = 0;
	const struct policy_pod *pod;
	const struct tuple *t;
	__be16 port;

	if (!policy_tracks())
		return POLICY_ALLOWED;
	if (!pc)
		return DROP_INTERNAL_ERROR; /* cannot be: the index has its element */
	t = &pc->transport.tuple;
	initiator = reply ? &t->destination : &t->source;
	other = reply ? &t->source : &t->destination;
	port = reply ? t->source_port : t->destination_port;
	if (directions & CT_EGRESS) {
		pod = bpf_map_lookup_elem(&policy_pods, initiator);
		egress = policy_rules(pc, pod ? pod->egress : 0, other, port, DROP_EGRESS_POLICY);
	}
	if (directions & CT_INGRESS && egress >= 0) {
		pod = bpf_map_lookup_elem(&policy_pods, other);
		ingress = policy_rules(pc, pod ? pod->ingress : 0, initiator, port, DROP_INGRESS_POLICY);
	}
	if (egress < 0 || ingress < 0) {
		if (!policy_is_exempt(skb, pc))
			return egress < 0 ? -egress : -ingress;
		egress = ingress = 0;
	}
	pc->entry.egress = egress;
	pc->entry.ingress = ingress;
	return POLICY_ALLOWED;
}

/*
 * Whether it matters that the sender of a packet has accepted its connection, while the rules allow that it opens one: its receiver may not open what it likes, or
 * the sender may not be reached by all.
 */
static __always_inline bool policy_initiator_matters(const struct policy_context *pc)
{
	const struct policy_pod *pod;

	if (pc->enforce & ENFORCE_INGRESS) {
		pod = bpf_map_lookup_elem(&policy_pods, &pc->transport.tuple.destination);
		if (pod && pod->egress)
			return true;
	}
	if (!(pc->enforce & ENFORCE_EGRESS))
		return false;
	pod = bpf_map_lookup_elem(&policy_pods, &pc->transport.tuple.source);
	return pod && pod->ingress;
}

/*
 * Asks about a session as opened by the other end too, since a socket of who counts as its opener has accepted it. That only takes away: a
 * sender that is isolated for egress stays the opener, so that its rules are asked again when policies change. Else the other end is.
 */
static __always_inline int policy_verdict_accepted(struct __sk_buff *skb, struct policy_context *pc)
{
	const struct policy_pod *sender = bpf_map_lookup_elem(&policy_pods, &pc->transport.tuple.source);
	__u32 egress = pc->entry.egress, ingress = pc->entry.ingress;
	int reason = policy_verdict(skb, policy_directions(pc->enforce, !pc->reply), !pc->reply);

	if (!pc->reply && !(sender && sender->egress)) {
		pc->reply = true;
		return reason;
	}
	pc->entry.egress = egress;
	pc->entry.ingress = ingress;
	pc->check_both = true;
	return reason;
}

/*
 * Asks about a datagram that its sender may not open a session with, as pc->session is to say. It is an answer all the same if a socket of the receiver is
 * connected to who sends: the receiver could open that session by a datagram of its own. All rules are asked about that.
 */
static __always_inline bool policy_reply_awaited(struct __sk_buff *skb, const struct policy_context *pc)
{
	return pc->transport.tuple.protocol == PROTOCOL_UDP &&
	       socket_role(skb, SOCKETS_OF_RECEIVER) == SOCKET_ROLE_CLIENT &&
	       policy_verdict(skb, policy_directions(pc->enforce, true), true) == POLICY_ALLOWED;
}

/*
 * Asks about a packet of no known session. With POLICY_ALLOWED, pc->answer says whether the receiver has opened it. What TCP sends
 * without a SYN is of a connection that began before there were policies, or was pushed out of `conntrack`, or somebody only says so. Ports prove
 * nothing, since the sender chooses them: it counts as opened by its sender, unless translation or a socket of the receiver says otherwise. If a socket of
 * who counts as its opener has accepted it, both directions have to be allowed: the first segment that a server sends may have made a NAT entry.
 */
static __always_inline int policy_verdict_new(struct __sk_buff *skb, struct policy_context *pc)
{
	bool midstream = !transport_may_initiate(&pc->transport) && pc->enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS);
	int socket = midstream ? socket_role(skb, SOCKETS_OF_RECEIVER) : SOCKET_ROLE_UNKNOWN;
	int reason;

	pc->reply = pc->nat_reply ? !transport_is_syn(&pc->transport) : socket == SOCKET_ROLE_CLIENT;
	pc->check_both = false;
	reason = policy_verdict(skb, policy_directions(pc->enforce, pc->reply), pc->reply);
	if (reason != POLICY_ALLOWED) {
		if (pc->reply)
			return reason;
		pc->reply = policy_reply_awaited(skb, pc);
		return pc->reply ? POLICY_ALLOWED : reason;
	}
	if (!pc->reply)
		socket = midstream && policy_initiator_matters(pc) ? socket_role(skb, SOCKETS_OF_SENDER)
								   : SOCKET_ROLE_UNKNOWN;
	return socket == SOCKET_ROLE_SERVER ? policy_verdict_accepted(skb, pc) : POLICY_ALLOWED;
}

/*
 * Asks about an ICMP error that quotes a packet of no known session: as good as that if a socket of the receiver has sent it. Without one
 * the quotation proves nothing, and the error is what its sender sends, of a protocol without ports.
 */
static __always_inline int policy_verdict_error(struct __sk_buff *skb, struct policy_context *pc)
{
	struct tuple *t = &pc->transport.tuple;
	int socket = socket_role(skb, SOCKETS_OF_RECEIVER);
	bool reply = socket == SOCKET_ROLE_CLIENT;

	if (socket == SOCKET_ROLE_UNKNOWN) {
		t->source = pc->sender;
		t->source_port = t->destination_port = 0;
		t->protocol = address_is_ipv4(&t->destination) ? PROTOCOL_ICMP : PROTOCOL_ICMPV6;
		pc->known = POLICY_KNOWN_PROTOCOL;
	}
	return policy_verdict(skb, policy_directions(pc->enforce, reply), reply);
}
