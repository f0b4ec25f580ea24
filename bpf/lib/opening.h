/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The first packets of connections: which are translated, and to what. A Service's go to a backend; what pods open to the
 * world gets the node's address (masquerading); what the world opens to a pod keeps its addresses, which has to be known
 * for its answers to keep theirs.
 */
#pragma once

#include "direct.h"
#include "endpoint.h"
#include "nat.h"
#include "refuse.h"
#include "session_translated.h"
#include "translation.h"
#include "way.h"

/* Why packets between two addresses are looked at, as decided once for all of them. */
enum translate_flag {
	TRANSLATE_OPENERS = 1 << 0,    /* a Service may have the destination */
	TRANSLATE_ANSWERS = 1 << 1,    /* nothing begins with them; they may be of a connection that is translated */
	TRANSLATE_NODE = 1 << 2,       /* to no pod here: most are for the node itself */
	TRANSLATE_WORLD = 1 << 3,      /* one end is a pod here, the other is not of the cluster */
	TRANSLATE_MASQUERADE = 1 << 4, /* a connection that a pod opens to the world gets the node's address here */
	TRANSLATE_STACK = 1 << 5,      /* the stack forwards them, unless their source is one that it would not take */
	TRANSLATE_FRESH =
		1 << 6, /* the pod takes part in no connection that could be theirs: only a Service is of concern */
	TRANSLATE_TUNNEL = 1 << 7, /* they came by a tunnel, whose other end they belong to */
};

/* Above those flags: what enum policed_flag says of the pod that sends. */
#define TRANSLATE_POLICED 8
_Static_assert(TRANSLATE_TUNNEL < 1 << TRANSLATE_POLICED, "flags of policies are above all others");

/* Whether packets that nobody translates must not go on: a pod's address would leave the cluster. */
static __always_inline bool opening_needs_source(enum place place, __u32 how)
{
	const __u32 masqueraded = TRANSLATE_WORLD | TRANSLATE_MASQUERADE;

	return (place == PLACE_POD || place == PLACE_TO_WIRE) && (how & masqueraded) == masqueraded;
}

/* From now on the pod's packets are looked up before they go straight. False if there is no room to note that. */
SEPARATE bool opening_mark(const struct address *pod)
{
	__u64 *since, now = connection_now();
	__u32 index = GENERATION_PODS;
	struct address key;
	__u32 *pods;

	if (!pod)
		return false;
	key = *pod;
	if (!endpoint_of(&key))
		return true; /* an address of the pods' range that no pod has: nothing will come from there */
	since = bpf_map_lookup_elem(&translated_pods, &key);
	if (since) {
		*since = now;
		return true;
	}
	if (bpf_map_update_elem(&translated_pods, &key, &now, BPF_ANY))
		return false;
	pods = bpf_map_lookup_elem(&generation, &index);
	if (pods)
		__sync_fetch_and_add(pods, 1);
	return true;
}

/* What becomes of a packet that is of no established connection, besides a drop with its reason, which is above 0. */
enum opening {
	OPENING_NEXT = 0, /* x->known says whether it is of a connection that is being opened: then that is x->found */
	OPENING_REFUSE = -1, /* the Service has no endpoints */
};

/* How the source of a connection that begins is to be, once its destination is known; or a reason to drop. */
enum source {
	SOURCE_KEEPS = 0,  /* its own; another port, if the answers could not be told from another connection's */
	SOURCE_NODE = -1,  /* an address of this node, which is in x->beginning, and a port that is free there */
	SOURCE_STACK = -2, /* not translated: the stack's */
	SOURCE_APART = -3, /* its own with another port: the answers would be taken for those of another connection */
};

/*
 * Begins x->beginning as it is, or with another port of its source if its answers could not be told from another's.
 * `source` is an enum source; with SOURCE_NODE others have ports of the address too. 0 or a reason to drop.
 */
SEPARATE int opening_begin(struct __sk_buff *skb, struct translation *x, int source)
{
	bool own_address = source == SOURCE_NODE, keeps_port = source != SOURCE_APART;
	enum claim claim = CLAIM_TAKEN;
	struct beginning *b;
	int slot;

	if (!x)
		return DROP_CONNECTIONS_FULL;
	b = &x->beginning;
	if (own_address) {
		if (origin_is_forged_tunnel(&b->to.destination, b->to.destination_port, b->key.protocol))
			return DROP_TUNNEL_PORT;
		connection_turn(&b->other, &b->to, b->key.protocol);
		keeps_port = connection_port_is_ours(b->to.source_port) &&
			     !(transport_has_ports(b->key.protocol) && nat_port_in_use(skb, &b->other));
	}
	slot = nat_slot_take(&b->key, b->to.owner, true);
	if (slot == NAT_SLOT_NONE)
		return DROP_CONNECTIONS_FULL;
	if (keeps_port)
		claim = connection_claim(own_address ? GIVE_WAY_NONE : GIVE_WAY_UNANSWERED);
	if (claim == CLAIM_TAKEN && !(b->to.flags & CONNECTION_PLAIN))
		claim = nat_search(skb, own_address);
	nat_slot_release(slot, claim == CLAIM_BEGUN, true);
	if (claim != CLAIM_BEGUN)
		return claim == CLAIM_TAKEN ? DROP_NO_NAT_PORT : DROP_CONNECTIONS_FULL;
	x->found = b->to;
	x->known = true;
	return 0;
}

/* Puts the address of an uplink into the source of x->beginning. */
static __always_inline int opening_take_address(struct translation *x, __u32 ifindex, int without)
{
	const struct address *a = nat_address(ifindex, &x->beginning.to.destination);

	if (!a)
		return without;
	x->beginning.to.source = *a;
	return SOURCE_NODE;
}

/* The same into a tunnel: an InternalIP, as which alone the other end takes it for this node's. False if there is none of the family. */
static __always_inline bool opening_take_tunnel_source(struct connection *to)
{
	__u32 family = !address_is_ipv4(&to->destination);
	const struct address *a = bpf_map_lookup_elem(&tunnel_sources, &family);

	if (!a || !(a->word[0] | a->word[1] | a->word[2] | a->word[3]))
		return false;
	to->source = *a;
	return true;
}

/*
 * Masquerades: a connection from a pod gets the address of the device through which it leaves, if that is an uplink. From
 * one without an address of the family, nothing leaves: the pod's address would.
 */
SEPARATE int opening_masquerade(struct __sk_buff *skb, struct translation *x, enum place place)
{
	struct connection *to;
	__u32 device;
	int without;

	if (!x)
		return SOURCE_STACK;
	to = &x->beginning.to;
	without = to->service ? SOURCE_KEEPS : SOURCE_STACK;
	if (place == PLACE_TO_WIRE)
		return opening_take_address(x, skb->ifindex, DROP_UNMASQUERADED);
	if (!way_is_known(way_ask_kernel(skb, x, &to->source, &to->destination)))
		return without;
	device = x->fib.ifindex;
	return bpf_map_lookup_elem(&uplinks, &device) ? opening_take_address(x, device, DROP_UNMASQUERADED) : without;
}

/*
 * A pod that reaches itself must not see its own address: its stack would answer itself instead of the Service. If no
 * device leads to the Service's address, that is the node's own, or nobody else's, and serves as well.
 */
static __always_inline int opening_hairpin(struct __sk_buff *skb, struct translation *x)
{
	struct connection *to = &x->beginning.to;

	if (way_is_known(way_ask_kernel(skb, x, &to->source, &x->beginning.key.destination)))
		return opening_take_address(x, x->fib.ifindex, DROP_NO_ROUTE);
	to->source = x->beginning.key.destination;
	return SOURCE_NODE;
}

/* From a pod to a backend: the pod's address is known wherever the backend is, unless that is in the world. */
SEPARATE int opening_from_pod(struct __sk_buff *skb, struct translation *x, __u32 how)
{
	enum route_kind kind;
	struct connection *to;

	if (!x)
		return SOURCE_STACK;
	to = &x->beginning.to;
	kind = route_copy(&to->destination, &x->route);
	if (!opening_mark(&to->source) || (kind == ROUTE_LOCAL && !opening_mark(&to->destination)))
		return DROP_CONNECTIONS_FULL;
	if (address_equals(&to->source, &to->destination))
		return opening_hairpin(skb, x);
	if (kind == ROUTE_UNKNOWN && how & TRANSLATE_MASQUERADE)
		return opening_masquerade(skb, x, PLACE_POD);
	return SOURCE_KEEPS;
}

/*
 * From the wire to a backend. A pod here, or this node itself, sees the client's address, since its answers come by here.
 * Those of another node's would not: it sees this node's.
 */
SEPARATE int opening_from_wire(struct __sk_buff *skb, struct translation *x, __u32 how)
{
	enum route_kind kind;
	struct connection *to;

	if (!x)
		return SOURCE_STACK;
	to = &x->beginning.to;
	kind = route_copy(&to->destination, &x->route);
	if (kind == ROUTE_LOCAL) {
		/* What a pod sends to the world is looked up in any case. */
		if (route_copy(&to->source, &x->route) != ROUTE_UNKNOWN && !opening_mark(&to->destination))
			return DROP_CONNECTIONS_FULL;
		return SOURCE_KEEPS;
	}
	if ((kind != ROUTE_TUNNEL || route_of_host(&to->destination)) && !(how & TRANSLATE_TUNNEL))
		to->flags |= CONNECTION_WIRE;
	if (direct_may(x, kind) && !(how & TRANSLATE_STACK)) {
		to->flags |= CONNECTION_DIRECT;
		return SOURCE_KEEPS;
	}
	if (kind == ROUTE_REMOTE)
		return opening_take_address(x, x->route.ifindex, DROP_NO_ROUTE);
	if (kind == ROUTE_TUNNEL) {
		if (opening_take_tunnel_source(to))
			return SOURCE_NODE;
		if (!way_is_known(way_ask_kernel(skb, x, &x->route.next_hop, &x->route.next_hop)))
			return DROP_NO_ROUTE;
	} else if (!way_is_known(way_ask_kernel(skb, x, &to->source, &to->destination))) {
		return SOURCE_KEEPS;
	}
	return opening_take_address(x, x->fib.ifindex, DROP_NO_ROUTE);
}

/* The backend of a connection to a Service, into x->beginning, whose service says whether it is one. */
static __always_inline int opening_service(struct translation *x, enum place place)
{
	enum side side = place == PLACE_POD ? SIDE_INSIDE : SIDE_OUTSIDE;
	struct connection *to = &x->beginning.to;
	struct tuple *t = &x->beginning.other; /* not in use yet */

	*t = x->transport.tuple;
	t->destination = x->frontend.address; /* another one's, if it was forwarded */
	switch (service_choose(t, side, 0, &x->choice)) {
	case ANSWER_BACKEND:
		to->destination = x->choice.backend.address;
		to->destination_port = x->choice.backend.port;
		to->service = x->choice.service;
		return OPENING_NEXT;
	case ANSWER_REFUSE:
		return OPENING_REFUSE;
	case ANSWER_DROP:
		return DROP_NO_LOCAL_BACKEND;
	case ANSWER_FORBID:
		return DROP_SOURCE_NOT_ALLOWED;
	case ANSWER_TUNNEL:
		return DROP_TUNNEL_PORT;
	default:
		return OPENING_NEXT;
	}
}

/* Whether a Service answers where the packet goes. */
static __always_inline bool opening_has_service(struct translation *x)
{
	x->forwarded = 0;
	if (!config_services || !transport_has_ports(x->transport.tuple.protocol))
		return false;
	service_frontend(&x->frontend, &x->transport.tuple);
	return service_of(&x->frontend);
}

/* Whose share a connection is of that begins at tc. What the stack sends at an uplink is masqueraded if it is a pod's. */
static __always_inline __u32 opening_owner(const struct __sk_buff *skb, const struct address *source, enum place place)
{
	const struct endpoint *e;

	if (place == PLACE_POD)
		return skb->ifindex;
	e = place == PLACE_TO_WIRE ? endpoint_of(source) : 0;
	return e ? e->ifindex : nat_owner_external(source);
}

/* Fills x->beginning with a connection of `owner` that keeps all that the packet has. */
static __always_inline void opening_prepare(struct translation *x, __u32 owner)
{
	const struct tuple *t = &x->transport.tuple;
	struct beginning *b = &x->beginning;

	b->key = *t;
	b->to.source = t->source;
	b->to.destination = t->destination;
	b->to.source_port = t->source_port;
	b->to.destination_port = t->destination_port;
	b->to.service = 0;
	b->to.owner = owner;
	b->to.flags = CONNECTION_OPENER;
}

/*
 * The source of a connection that begins. What is no Service's: masquerade what pods open to the world, remember what
 * the world opens to pods.
 */
static __always_inline int opening_source(struct __sk_buff *skb, struct translation *x, enum place place, __u32 how)
{
	if (x->beginning.to.service)
		return place == PLACE_POD ? opening_from_pod(skb, x, how) : opening_from_wire(skb, x, how);
	if (opening_needs_source(place, how))
		return opening_masquerade(skb, x, place);
	if (place != PLACE_WIRE || !(how & TRANSLATE_WORLD))
		return SOURCE_STACK;
	x->beginning.to.flags |= CONNECTION_PLAIN;
	return SOURCE_KEEPS;
}

/*
 * Whether policies allow x->beginning, whose destination is known: 0 or a reason to drop. What the stack sends has been asked about where the
 * stack got it.
 */
static __always_inline int opening_allowed(struct __sk_buff *skb, const struct translation *x, enum place place,
					   __u32 how)
{
	const struct address *destination = &x->beginning.to.destination;
	__u32 policed = how >> TRANSLATE_POLICED;
	const struct endpoint *receiver;

	if (!policy_tracks() || place == PLACE_TO_WIRE)
		return SESSION_ALLOWED;
	receiver = policy_governs(destination) ? endpoint_of(destination) : 0;
	if (config_ebpf_routing && receiver && !receiver->through_stack)
		policed |= POLICED_INGRESS; /* else to_pod asks */
	return session_may_begin(skb, x, place == PLACE_POD ? PROGRAM_FROM_POD : PROGRAM_FROM_WIRE, policed);
}

/*
 * A packet that a pod here gets with its addresses as they are. If it begins a connection whose answers would be taken for those of a
 * Service's, which has the same ends because its client kept its address and port, it gets another port, as conntrack would give it.
 */
static __always_inline int opening_direct(struct __sk_buff *skb, struct translation *x, __u32 how)
{
	const struct transport *t = &x->transport;
	struct beginning *b = &x->beginning;
	int reason;

	if (t->kind != TRANSPORT_PORTS || !transport_has_ports(t->tuple.protocol))
		return OPENING_NEXT;
	if (transport_has_flags(t->tuple.protocol) && (t->flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return OPENING_NEXT;
	opening_prepare(x, nat_owner_external(&t->tuple.source));
	connection_turn(&b->other, &b->to, b->key.protocol);
	if (!bpf_map_lookup_elem(&connections, &b->other) && !bpf_map_lookup_elem(&openings, &b->other))
		return OPENING_NEXT;
	reason = opening_allowed(skb, x, PLACE_WIRE, how);
	return reason ? reason : opening_begin(skb, x, SOURCE_APART);
}

/* What becomes of a packet that is of no established connection: an enum opening, or a reason to drop it. */
SEPARATE int opening_decide(struct __sk_buff *skb, enum place place, __u32 how, __u64 now)
{
	struct translation *x = translation_place(); /* found, so that it has keys of maps */
	const struct connection *c;
	bool service;
	int v;

	if (!x)
		return OPENING_NEXT;
	x->known = false;
	service = how & TRANSLATE_OPENERS &&
		  (opening_has_service(x) || (place == PLACE_WIRE && direct_arrived(x, skb->ifindex)));
	/* Most of what arrives for the node itself is for the node itself. */
	if (how & TRANSLATE_NODE && !service && !connection_port_is_ours(x->transport.tuple.destination_port))
		return OPENING_NEXT;
	v = connection_find_opening(&x->transport, now, &x->found);
	x->known = v == FOUND_CONNECTION;
	if (v != FOUND_NOTHING)
		return v == FOUND_NO_ROOM ? DROP_CONNECTIONS_FULL : OPENING_NEXT;
	if (how & TRANSLATE_ANSWERS)
		return place == PLACE_WIRE && !(how & TRANSLATE_STACK) ? opening_direct(skb, x, how) : OPENING_NEXT;
	c = bpf_map_lookup_elem(&connections, &x->transport.tuple); /* where another CPU may have moved it meanwhile */
	if (c) {
		x->found = *c;
		x->known = true;
		return OPENING_NEXT;
	}
	if (x->transport.kind == TRANSPORT_PIECE || x->transport.reply)
		return opening_needs_source(place, how) ? DROP_UNTRANSLATABLE : OPENING_NEXT;
	opening_prepare(x, opening_owner(skb, &x->transport.tuple.source, place));
	v = service ? opening_service(x, place) : OPENING_NEXT;
	if (v == OPENING_NEXT && x->beginning.to.service && place == PLACE_WIRE && !(how & TRANSLATE_TUNNEL) &&
	    (!origin_may_be_backends(&x->beginning.to.source, &x->beginning.to.destination) ||
	     origin_is_own(&x->beginning.to.source, &x->beginning.to.destination)))
		return DROP_INVALID_SOURCE;
	if (v == OPENING_NEXT && (x->beginning.to.service || how & TRANSLATE_WORLD))
		v = opening_allowed(skb, x, place, how);
	if (v != OPENING_NEXT)
		return v;
	v = opening_source(skb, x, place, how);
	if (v == SOURCE_STACK)
		return OPENING_NEXT;
	return v > 0 ? v : opening_begin(skb, x, v);
}
