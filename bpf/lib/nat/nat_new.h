/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * New connections: which are translated, and how. Connections to Services get a backend. Connections of pods to
 * external addresses get an address of the node (masquerading). External connections to a pod's address stay
 * unchanged, but have an entry, so that their replies are not masqueraded.
 */
#pragma once

#include "lib/lb/dsr.h"
#include "lib/nat/icmp_reply.h"
#include "lib/nat/snat.h"
#include "lib/policy/policy_nat.h"

/* The verdict on a packet without an established connection; a drop reason is positive. */
enum nat_new_verdict {
	NAT_NEW_NEXT = 0,    /* if state->has_entry, state->entry is its pending connection */
	NAT_NEW_REJECT = -1, /* the Service has no endpoints */
};

/* Chooses the backend of a connection to a Service. Sets state->fresh.to.service if there is one. */
static __always_inline int nat_new_service(struct nat_state *state, enum hook hook)
{
	enum lb_side side = hook == HOOK_FROM_POD ? LB_INTERNAL : LB_EXTERNAL;
	struct nat_entry *to = &state->fresh.to;
	struct tuple *t = &state->fresh.reply_tuple; /* scratch: nat_alloc sets it later */
	int verdict;

	*t = state->transport.tuple;
	t->destination = state->frontend.address; /* another node's, if the packet was forwarded by DSR */
	verdict = service_choose(t, side, 0, &state->choice);
	if (verdict == LB_REJECT)
		return NAT_NEW_REJECT;
	if (verdict != LB_BACKEND)
		return verdict;
	to->destination = state->choice.backend.address;
	to->destination_port = state->choice.backend.port;
	to->service = state->choice.service;
	return NAT_NEW_NEXT;
}

/* Whether the packet is addressed to a frontend. */
static __always_inline bool nat_has_service(struct nat_state *state)
{
	state->forwarded = 0;
	if (!config_services || !transport_has_ports(state->transport.tuple.protocol))
		return false;
	service_frontend(&state->frontend, &state->transport.tuple);
	return service_of(&state->frontend);
}

/* The owner of a new connection. What the kernel stack sends at an uplink belongs to the pod that has its source. */
static __always_inline __u32 nat_new_owner(const struct __sk_buff *skb, const struct address *source, enum hook hook)
{
	const struct endpoint *e;

	if (hook == HOOK_FROM_POD)
		return skb->ifindex;
	e = hook == HOOK_TO_WIRE ? endpoint_of(source) : 0;
	return e ? e->ifindex : nat_owner_external(source);
}

/*
 * Whether a packet of the wire claims to be from a Service. Recorded as an external connection, it would keep the pod's
 * own connection with these ports from being translated.
 */
static __always_inline bool nat_new_is_of_service(struct nat_state *state, enum hook hook)
{
	struct frontend *f = &state->frontend; /* scratch */

	if (!config_services || hook != HOOK_FROM_WIRE)
		return false;
	f->address = state->transport.tuple.source;
	f->port = state->transport.tuple.source_port;
	f->protocol = state->transport.tuple.protocol;
	f->padding = 0;
	return service_serves_pods(f);
}

/* Initialises state->fresh with an unchanged connection of `owner`. */
static __always_inline void nat_new_init(struct nat_state *state, __u32 owner)
{
	const struct tuple *t = &state->transport.tuple;
	struct nat_new *fresh = &state->fresh;

	fresh->key = *t;
	fresh->to.source = t->source;
	fresh->to.destination = t->destination;
	fresh->to.source_port = t->source_port;
	fresh->to.destination_port = t->destination_port;
	fresh->to.service = 0;
	fresh->to.owner = owner;
	fresh->to.flags = NAT_INITIATOR;
}

/*
 * Whether policies allow state->fresh, whose destination is final: POLICY_ALLOWED or a drop reason. Packets of the
 * kernel stack were evaluated where it received them.
 */
static __always_inline int nat_new_allowed(struct __sk_buff *skb, const struct nat_state *state, enum hook hook,
					   __u32 checks)
{
	const struct address *destination = &state->fresh.to.destination;
	__u32 enforce = checks >> NAT_CHECK_ENFORCE_SHIFT;
	const struct endpoint *receiver;

	if (!policy_tracks() || hook == HOOK_TO_WIRE)
		return POLICY_ALLOWED;
	receiver = policy_selects(destination) ? endpoint_of(destination) : 0;
	if (config_ebpf_routing && receiver && !receiver->through_stack)
		enforce |= ENFORCE_INGRESS; /* else to_pod evaluates */
	return policy_check_new(skb, state, hook == HOOK_FROM_POD ? PROGRAM_FROM_POD : PROGRAM_FROM_WIRE, enforce);
}

/*
 * A packet to a local pod with unchanged addresses. If it starts a connection whose reply tuple belongs to a
 * connection through a Service, because its client has the same address and port, it gets another source port, as
 * conntrack would give it.
 */
static __always_inline int nat_new_clash(struct __sk_buff *skb, struct nat_state *state, __u32 checks)
{
	const struct transport *t = &state->transport;
	struct nat_new *fresh = &state->fresh;
	int reason;

	if (t->kind != TRANSPORT_PORTS || !transport_has_ports(t->tuple.protocol))
		return NAT_NEW_NEXT;
	if (transport_has_flags(t->tuple.protocol) && !transport_is_syn(t))
		return NAT_NEW_NEXT;
	nat_new_init(state, nat_owner_external(&t->tuple.source));
	nat_reply_key(&fresh->reply_tuple, &fresh->to, fresh->key.protocol);
	if (!bpf_map_lookup_elem(&nat, &fresh->reply_tuple) && !bpf_map_lookup_elem(&nat_pending, &fresh->reply_tuple))
		return NAT_NEW_NEXT;
	reason = nat_new_allowed(skb, state, HOOK_FROM_WIRE, checks);
	return reason ? reason : snat_alloc(skb, state, SNAT_PORT);
}

/* Decides about a packet without an established connection: enum nat_new_verdict, or a drop reason. */
GLOBAL_FN int nat_new_decide(struct __sk_buff *skb, enum hook hook, __u32 checks, __u64 now)
{
	struct nat_state *state = nat_state_get(); /* looked up again: map values may be keys, arguments may not */
	const struct nat_entry *entry;
	bool service;
	int v;

	if (!state)
		return NAT_NEW_NEXT;
	state->has_entry = false;
	service = checks & NAT_CHECK_NEW &&
		  (nat_has_service(state) || (hook == HOOK_FROM_WIRE && dsr_arrived(state, skb->ifindex)));
	/* Most packets to the node are for the node itself. */
	if (checks & NAT_CHECK_NODE && !service && !nat_port_in_range(state->transport.tuple.destination_port))
		return NAT_NEW_NEXT;
	v = nat_find_pending(&state->transport, now, &state->entry);
	state->has_entry = v == NAT_FIND_ENTRY;
	if (v != NAT_FIND_NONE)
		return v == NAT_FIND_FULL ? DROP_NAT_TABLE_FULL : NAT_NEW_NEXT;
	if (checks & NAT_CHECK_REPLIES)
		return hook == HOOK_FROM_WIRE && !(checks & NAT_CHECK_STACK) ? nat_new_clash(skb, state, checks)
									     : NAT_NEW_NEXT;
	entry = bpf_map_lookup_elem(&nat, &state->transport.tuple); /* another CPU may have established it */
	if (entry) {
		state->entry = *entry;
		state->has_entry = true;
		return NAT_NEW_NEXT;
	}
	if (state->transport.kind == TRANSPORT_FRAGMENT || state->transport.reply)
		return snat_required(hook, checks) ? DROP_NAT_UNSUPPORTED_PROTOCOL : NAT_NEW_NEXT;
	if (!service && nat_new_is_of_service(state, hook))
		return NAT_NEW_NEXT;
	nat_new_init(state, nat_new_owner(skb, &state->transport.tuple.source, hook));
	v = service ? nat_new_service(state, hook) : NAT_NEW_NEXT;
	if (v == NAT_NEW_NEXT && state->fresh.to.service && hook == HOOK_FROM_WIRE && !(checks & NAT_CHECK_TUNNEL) &&
	    (!source_valid_for_backend(&state->fresh.to.source, &state->fresh.to.destination) ||
	     source_is_own(&state->fresh.to.source, &state->fresh.to.destination)))
		return DROP_INVALID_SOURCE;
	if (v == NAT_NEW_NEXT && (state->fresh.to.service || checks & NAT_CHECK_EXTERNAL))
		v = nat_new_allowed(skb, state, hook, checks);
	if (v != NAT_NEW_NEXT)
		return v;
	v = snat_choose(skb, state, hook, checks);
	if (v == SNAT_STACK)
		return NAT_NEW_NEXT;
	return v > 0 ? v : snat_alloc(skb, state, v);
}
