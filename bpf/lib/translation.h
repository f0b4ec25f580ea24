/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What translating one packet works on. */
#pragma once

#include "connection.h"
#include "icmp.h"
#include "service.h"
#include "transport.h"

/* In memory of the CPU's own, since the stack (512 bytes for a chain of calls) has no room for it: `translations`. */
struct translation {
	struct transport transport;
	struct beginning beginning;
	struct connection found; /* a copy of what is not in `connections`, valid if `known` */
	struct frontend frontend;
	struct choice choice;
	struct bpf_fib_lookup fib;
	struct icmp_error_quote error; /* if the packet is an ICMP error */
	struct route route;
	__u32 known;
	__u32 forwarded; /* not 0: by another node, untranslated (DSR) */
	__u32 mtu;	 /* of the way of a packet that does not fit it */
};
_Static_assert(sizeof(struct translation) <= TRANSLATION_SIZE, "translations has room for it");

/* Where a packet is when it is translated. */
enum place {
	PLACE_POD,     /* from_pod */
	PLACE_WIRE,    /* from_wire and from_tunnel */
	PLACE_TO_POD,  /* the stack is about to deliver it */
	PLACE_TO_WIRE, /* the stack is about to send it */
};

/* Programs on one CPU do not interrupt each other. NULL cannot be: the index has its element. */
static __always_inline struct translation *translation_place(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&translations, &zero);
}
