/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The first packets of connections: which are translated, and to what. A Service's go to a backend; what pods open to the
 * world gets the node's address (masquerading); what the world opens to a pod keeps its addresses, which has to be known
 * for its answers to keep theirs.
 */
#pragma once

#include "lib/lb/dsr.h"
#include "lib/nat/icmp_reply.h"
#include "lib/nat/snat.h"
#include "lib/policy/policy_nat.h"

/* What becomes of a packet that is of no established connection, besides a drop with its reason, which is above 0. */
enum nat_new_verdict {
	NAT_NEW_NEXT = 0, /* x->known says whether it is of a connection that is being opened: then that is x->found */
	NAT_NEW_REJECT = -1, /* the Service has no endpoints */
};

/* The backend of a connection to a Service, into state->beginning, whose service says whether it is one. */
static __always_inline int nat_new_service(struct nat_state *state, enum hook hook)
{
	enum lb_side side = hook == HOOK_FROM_POD ? LB_INTERNAL : LB_EXTERNAL;
	struct nat_entry *to = &state->new.to;
	struct tuple *t = &state->new.other; /* not in use yet */

	*t = state->transport.tuple;
	t->destination = state->frontend.address; /* another one's, if it was forwarded */
	switch (service_choose(t, side, 0, &state->choice)) {
	case LB_BACKEND:
		to->destination = state->choice.backend.address;
		to->destination_port = state->choice.backend.port;
		to->service = state->choice.service;
		return NAT_NEW_NEXT;
	case LB_REJECT:
		return NAT_NEW_REJECT;
	case LB_DROP:
		return DROP_NO_LOCAL_BACKEND;
	case LB_DENY:
		return DROP_SOURCE_NOT_ALLOWED;
	case LB_TUNNEL_PORT:
		return DROP_TUNNEL_PORT;
	default:
		return NAT_NEW_NEXT;
	}
}

/* Whether a Service answers where the packet goes. */
static __always_inline bool nat_has_service(struct nat_state *state)
{
	state->forwarded = 0;
	if (!config_services || !transport_has_ports(state->transport.tuple.protocol))
		return false;
	service_frontend(&state->frontend, &state->transport.tuple);
	return service_of(&state->frontend);
}

/* Whose share a connection is of that begins at tc. What the stack sends at an uplink is masqueraded if it is a pod's. */
static __always_inline __u32 nat_new_owner(const struct __sk_buff *skb, const struct address *source, enum hook hook)
{
	const struct endpoint *e;

	if (hook == HOOK_FROM_POD)
		return skb->ifindex;
	e = hook == HOOK_TO_WIRE ? endpoint_of(source) : 0;
	return e ? e->ifindex : nat_owner_external(source);
}

/* Fills state->beginning with a connection of `owner` that keeps all that the packet has. */
static __always_inline void nat_new_init(struct nat_state *state, __u32 owner)
{
	const struct tuple *t = &state->transport.tuple;
	struct nat_new *new = &state->new;

	new->key = *t;
	new->to.source = t->source;
	new->to.destination = t->destination;
	new->to.source_port = t->source_port;
	new->to.destination_port = t->destination_port;
	new->to.service = 0;
	new->to.owner = owner;
	new->to.flags = NAT_INITIATOR;
}

/*
 * Whether policies allow state->beginning, whose destination is known: 0 or a reason to drop. What the stack sends has been asked about where the
 * stack got it.
 */
static __always_inline int nat_new_allowed(struct __sk_buff *skb, const struct nat_state *state, enum hook hook,
					   __u32 checks)
{
	const struct address *destination = &state->new.to.destination;
	__u32 enforce = checks >> NAT_CHECK_ENFORCE_SHIFT;
	const struct endpoint *receiver;

	if (!policy_tracks() || hook == HOOK_TO_WIRE)
		return POLICY_ALLOWED;
	receiver = policy_selects(destination) ? endpoint_of(destination) : 0;
	if (config_ebpf_routing && receiver && !receiver->through_stack)
		enforce |= ENFORCE_INGRESS; /* else to_pod asks */
	return policy_check_new(skb, state, hook == HOOK_FROM_POD ? PROGRAM_FROM_POD : PROGRAM_FROM_WIRE, enforce);
}

/*
 * A packet that a pod here gets with its addresses as they are. If it begins a connection whose answers would be taken for those of a
 * Service's, which has the same ends because its client kept its address and port, it gets another port, as conntrack would give it.
 */
static __always_inline int nat_new_clash(struct __sk_buff *skb, struct nat_state *state, __u32 checks)
{
	const struct transport *t = &state->transport;
	struct nat_new *new = &state->new;
	int reason;

	if (t->kind != TRANSPORT_PORTS || !transport_has_ports(t->tuple.protocol))
		return NAT_NEW_NEXT;
	if (transport_has_flags(t->tuple.protocol) && (t->flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return NAT_NEW_NEXT;
	nat_new_init(state, nat_owner_external(&t->tuple.source));
	nat_reply_key(&new->other, &new->to, new->key.protocol);
	if (!bpf_map_lookup_elem(&nat, &new->other) && !bpf_map_lookup_elem(&nat_pending, &new->other))
		return NAT_NEW_NEXT;
	reason = nat_new_allowed(skb, state, HOOK_FROM_WIRE, checks);
	return reason ? reason : snat_alloc(skb, state, SNAT_PORT);
}

/* What becomes of a packet that is of no established connection: an enum nat_new_verdict, or a reason to drop it. */
GLOBAL_FN int nat_new_decide(struct __sk_buff *skb, enum hook hook, __u32 checks, __u64 now)
{
	struct nat_state *state = nat_state_get(); /* found, so that it has keys of maps */
	const struct nat_entry *entry;
	bool service;
	int v;

	if (!state)
		return NAT_NEW_NEXT;
	state->has_entry = false;
	service = checks & NAT_CHECK_NEW &&
		  (nat_has_service(state) || (hook == HOOK_FROM_WIRE && dsr_arrived(state, skb->ifindex)));
	/* Most of what arrives for the node itself is for the node itself. */
	if (checks & NAT_CHECK_NODE && !service && !nat_port_in_range(state->transport.tuple.destination_port))
		return NAT_NEW_NEXT;
	v = nat_find_pending(&state->transport, now, &state->entry);
	state->has_entry = v == NAT_FIND_ENTRY;
	if (v != NAT_FIND_NONE)
		return v == NAT_FIND_FULL ? DROP_NAT_TABLE_FULL : NAT_NEW_NEXT;
	if (checks & NAT_CHECK_REPLIES)
		return hook == HOOK_FROM_WIRE && !(checks & NAT_CHECK_STACK) ? nat_new_clash(skb, state, checks)
									     : NAT_NEW_NEXT;
	entry = bpf_map_lookup_elem(&nat, &state->transport.tuple); /* where another CPU may have moved it meanwhile */
	if (entry) {
		state->entry = *entry;
		state->has_entry = true;
		return NAT_NEW_NEXT;
	}
	if (state->transport.kind == TRANSPORT_FRAGMENT || state->transport.reply)
		return snat_required(hook, checks) ? DROP_NAT_UNSUPPORTED_PROTOCOL : NAT_NEW_NEXT;
	nat_new_init(state, nat_new_owner(skb, &state->transport.tuple.source, hook));
	v = service ? nat_new_service(state, hook) : NAT_NEW_NEXT;
	if (v == NAT_NEW_NEXT && state->new.to.service &&hook == HOOK_FROM_WIRE && !(checks & NAT_CHECK_TUNNEL) &&
	    (!source_valid_for_backend(&state->new.to.source, &state->new.to.destination) ||
	     source_is_own(&state->new.to.source, &state->new.to.destination)))
		return DROP_INVALID_SOURCE;
	if (v == NAT_NEW_NEXT && (state->new.to.service || checks &NAT_CHECK_EXTERNAL))
		v = nat_new_allowed(skb, state, hook, checks);
	if (v != NAT_NEW_NEXT)
		return v;
	v = snat_choose(skb, state, hook, checks);
	if (v == SNAT_STACK)
		return NAT_NEW_NEXT;
	return v > 0 ? v : snat_alloc(skb, state, v);
}
