/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The verdict of policies on a connection: its initiator, the rules of both ends, and exemptions. */
#pragma once

#include "lib/policy/socket_role.h"

/* The result of an evaluation; a drop reason is positive. */
enum policy_result {
	POLICY_ALLOWED = 0,
	POLICY_NEW = -1, /* starts a connection, if policies allow it */
	POLICY_INITIATOR_UNKNOWN =
		-2, /* the initiator is unknown: re-evaluate as a new connection; revoke the entry if denied */
};

/*
 * The directions (as the initiator sees them) that local policies apply to. `reply`: the packet's sender is not
 * the initiator. Computed without branches: the verifier would walk what follows for each outcome.
 */
static __always_inline __u32 policy_directions(__u32 enforce, bool reply)
{
	__u32 ends = enforce & (ENFORCE_EGRESS | ENFORCE_INGRESS);

	_Static_assert(CT_EGRESS * ENFORCE_EGRESS == CT_EGRESS && CT_EGRESS * ENFORCE_INGRESS == CT_INGRESS,
		       "the directions have the order of the ends");
	_Static_assert(ENFORCE_EGRESS << 1 == ENFORCE_INGRESS, "a reply exchanges both bits");
	return ((ends << reply | ends >> reply) & (ENFORCE_EGRESS | ENFORCE_INGRESS)) * CT_EGRESS;
}

/* Whether the drop reason says that policies are not active yet. */
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
 * Traffic that policies never deny: of a pod with itself, also through its Service, and with its own node.
 * kube-proxy may have masqueraded the hairpin. Only the pod's device proves that the sender is the pod, and only a
 * packet that was not forwarded is from the node.
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
 * Evaluates the policies of both ends, as far as `directions` (enum ct_flag) names them, for a connection that the
 * packet's sender initiates, or with `reply` its receiver. POLICY_ALLOWED, with the NetworkPolicies in pc->entry,
 * or a drop reason.
 */
GLOBAL_FN int policy_verdict(struct __sk_buff *skb, __u32 directions, bool reply)
{
	struct policy_context *pc =
		policy_context_get(); /* looked up again: map values may be keys, arguments may not */
	const struct address *initiator, *other;
	__s64 egress = 0, ingress = 0;
	const struct policy_pod *pod;
	const struct tuple *t;
	__u32 proto_port;

	if (!policy_tracks())
		return POLICY_ALLOWED;
	if (!pc)
		return DROP_INTERNAL_ERROR;
	t = &pc->transport.tuple;
	initiator = reply ? &t->destination : &t->source;
	other = reply ? &t->source : &t->destination;
	proto_port = policy_proto_port(t->protocol, reply ? t->source_port : t->destination_port, pc->known);
	if (directions & CT_EGRESS) {
		pod = bpf_map_lookup_elem(&policy_pods, initiator);
		egress = policy_rules(pod ? pod->egress : 0, other, proto_port, DROP_EGRESS_POLICY);
	}
	if (directions & CT_INGRESS && egress >= 0) {
		pod = bpf_map_lookup_elem(&policy_pods, other);
		ingress = policy_rules(pod ? pod->ingress : 0, initiator, proto_port, DROP_INGRESS_POLICY);
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
 * Whether the direction changes the verdict: the receiver may not initiate everything, or the sender may not be
 * reached by everyone.
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
 * Evaluates the reverse direction too, because the supposed initiator has an accepted socket. This can only deny.
 * A sender that is isolated for egress stays the initiator, so its rules apply when policies change; else the
 * other end becomes the initiator.
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
 * Whether a denied datagram is a reply: a socket of the receiver is connected to the sender, and policies allow
 * the receiver to initiate.
 */
static __always_inline bool policy_reply_awaited(struct __sk_buff *skb, const struct policy_context *pc)
{
	return pc->transport.tuple.protocol == PROTOCOL_UDP &&
	       socket_role(skb, SOCKETS_OF_RECEIVER) == SOCKET_ROLE_CLIENT &&
	       policy_verdict(skb, policy_directions(pc->enforce, true), true) == POLICY_ALLOWED;
}

/*
 * Evaluates a packet without an entry. With POLICY_ALLOWED, pc->reply says whether the receiver is the initiator.
 * A TCP packet without SYN belongs to a connection that is older than the policies or was evicted, or it is
 * forged. Ports prove nothing, so the sender counts as the initiator unless NAT or a socket of the receiver says
 * otherwise. If the supposed initiator has an accepted socket, both directions must be allowed.
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
 * Evaluates an ICMP error about an unknown connection. A socket of the receiver that sent the quoted packet makes
 * it part of that connection. Else the quotation may be forged, and the error counts as a packet of its sender
 * without ports.
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
