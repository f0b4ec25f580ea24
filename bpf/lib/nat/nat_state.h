/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What translating one packet works on. */
#pragma once

#include "lib/nat/nat_table.h"
#include "lib/net/icmp.h"
#include "lib/lb/service.h"
#include "lib/net/transport.h"

/* In memory of the CPU's own, since the stack (512 bytes for a chain of calls) has no room for it: `nat_scratch`. */
struct nat_state {
	struct transport transport;
	struct nat_new new;
	struct nat_entry entry; /* a copy of what is not in `nat`, valid if `known` */
	struct frontend frontend;
	struct lb_choice choice;
	struct bpf_fib_lookup fib;
	struct icmp_error_quote error; /* if the packet is an ICMP error */
	struct route route;
	__u32 has_entry;
	__u32 forwarded; /* not 0: by another node, untranslated (DSR) */
	__u32 mtu;	 /* of the way of a packet that does not fit it */
};
_Static_assert(sizeof(struct nat_state) <= NAT_SCRATCH_SIZE, "translations has room for it");

/* Where a packet is when it is translated. */
enum hook {
	HOOK_FROM_POD,	/* from_pod */
	HOOK_FROM_WIRE, /* from_wire and from_tunnel */
	HOOK_TO_POD,	/* the stack is about to deliver it */
	HOOK_TO_WIRE,	/* the stack is about to send it */
};

/* Why packets between two addresses are looked at, as decided once for all of them. */
enum nat_check {
	NAT_CHECK_NEW = 1 << 0,	       /* a Service may have the destination */
	NAT_CHECK_REPLIES = 1 << 1,    /* nothing begins with them; they may be of a connection that is translated */
	NAT_CHECK_NODE = 1 << 2,       /* to no pod here: most are for the node itself */
	NAT_CHECK_EXTERNAL = 1 << 3,   /* one end is a pod here, the other is not of the cluster */
	NAT_CHECK_MASQUERADE = 1 << 4, /* a connection that a pod opens to the world gets the node's address here */
	NAT_CHECK_STACK = 1 << 5,      /* the stack forwards them, unless their source is one that it would not take */
	NAT_CHECK_SERVICE =
		1 << 6, /* the pod takes part in no connection that could be theirs: only a Service is of concern */
	NAT_CHECK_TUNNEL = 1 << 7, /* they came by a tunnel, whose other end they belong to */
};

/* Above those flags: what enum enforce_flag says of the pod that sends. */
#define NAT_CHECK_ENFORCE_SHIFT 8
_Static_assert(NAT_CHECK_TUNNEL < 1 << NAT_CHECK_ENFORCE_SHIFT, "flags of policies are above all others");

/* Programs on one CPU do not interrupt each other. NULL cannot be: the index has its element. */
static __always_inline struct nat_state *nat_state_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&nat_scratch, &zero);
}
