/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The working state of NAT for one packet. */
#pragma once

#include "lib/lb/service.h"
#include "lib/nat/nat_table.h"
#include "lib/net/icmp.h"
#include "lib/net/transport.h"

/* In `nat_scratch`: too large for the BPF stack (512 bytes for a call chain). */
struct nat_state {
	struct transport transport;
	struct nat_new fresh;
	struct nat_entry entry; /* copy of a pending entry, valid if has_entry */
	struct frontend frontend;
	struct lb_choice choice;
	struct bpf_fib_lookup fib;
	struct icmp_error_quote error; /* of an ICMP error */
	struct route route;
	__u32 has_entry;
	__u32 forwarded; /* not 0: forwarded by another node by DSR */
	__u32 mtu;	 /* of the route, if the packet exceeds it */
	__u32 renew;	 /* of nexthop_find: the packet renews the neighbour entry of its next hop */
};
_Static_assert(sizeof(struct nat_state) <= NAT_SCRATCH_SIZE, "nat_state fits nat_scratch");

/* The hook that a packet is translated at. */
enum hook {
	HOOK_FROM_POD,	/* from_pod */
	HOOK_FROM_WIRE, /* from_wire and from_tunnel */
	HOOK_TO_POD,	/* from_pod has not redirected it: the kernel stack delivers */
	HOOK_TO_WIRE,	/* the kernel stack sends */
};

/* Why packets between two addresses are looked up. Part of the flow cache entry. */
enum nat_check {
	NAT_CHECK_NEW = 1 << 0,	       /* the destination may be a frontend */
	NAT_CHECK_REPLIES = 1 << 1,    /* they may be replies of a translated connection; they start none */
	NAT_CHECK_NODE = 1 << 2,       /* not to a local pod: mostly for the node itself */
	NAT_CHECK_EXTERNAL = 1 << 3,   /* between a local pod and an external address */
	NAT_CHECK_MASQUERADE = 1 << 4, /* external connections of a pod are masqueraded here */
	NAT_CHECK_STACK = 1 << 5,      /* the kernel stack forwards them, if it accepts their source */
	NAT_CHECK_SERVICE =
		1
		<< 6, /* of a pod without translated connections, to the node or not masqueraded: only a frontend matters */
	NAT_CHECK_TUNNEL = 1 << 7, /* from the node at the other end of a tunnel */
};

/* Bits above: enum enforce_flag of the sending pod. */
#define NAT_CHECK_ENFORCE_SHIFT 8
_Static_assert(NAT_CHECK_TUNNEL < 1 << NAT_CHECK_ENFORCE_SHIFT, "enforce flags are above NAT checks");

/* Programs on one CPU do not interrupt each other. */
static __always_inline struct nat_state *nat_state_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&nat_scratch, &zero);
}
