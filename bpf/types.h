/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every struct and enum that Go sees: the only ABI between the datapath and the agent. bpf2go makes the Go
 * types from these, so nothing is written twice. Multi-byte fields are in host byte order unless their type
 * says otherwise; padding is explicit and must be zero, since map keys are compared as bytes.
 */
#pragma once

#include <linux/types.h>
#include <linux/if_ether.h>

typedef _Bool bool;
#define true 1
#define false 0

/* An IPv4 address is kept as the IPv4-mapped IPv6 address ::ffff:a.b.c.d (RFC 4291, 2.5.5.2), in network order. */
struct address {
	__be32 word[4];
};
_Static_assert(sizeof(struct address) == 16, "address is a map key");

/* Value of `endpoints`: the pod on this node that owns an address. */
struct endpoint {
	__u32 ifindex;		 /* host end of the pod's device */
	__u8 pod_mac[ETH_ALEN];	 /* the pod's end */
	__u8 host_mac[ETH_ALEN]; /* the host's end, which pods use as their gateway's */
	__u8 through_stack;	 /* not 0: what the pod sends and receives is the host's stack's to forward */
	__u8 padding[3];
};
_Static_assert(sizeof(struct endpoint) == 20, "endpoint has no hidden padding");

/* Key of `routes`: a prefix. prefix_len counts the bits of an IPv6 prefix: 96 more than those of an IPv4 one. */
struct route_key {
	__u32 prefix_len;
	struct address address; /* bits behind the prefix are zero */
};
_Static_assert(sizeof(struct route_key) == 20, "route_key is a map key");

#define PREFIX_LENGTHS_MAX 16

/* Value of `route_lengths`: the lengths that `routes` has prefixes of, in the order in which they are tried. */
struct prefix_lengths {
	__u32 count;
	__u32 prefix_len[PREFIX_LENGTHS_MAX];
	struct address mask[PREFIX_LENGTHS_MAX];
};

/* What lies behind an address of the cluster. Addresses outside of every route are the world's. */
enum route_kind {
	ROUTE_UNKNOWN = 0,
	ROUTE_LOCAL = 1,   /* pods of this node: ask `endpoints` */
	ROUTE_REMOTE = 2,  /* pods and addresses of another node on this link */
	ROUTE_CLUSTER = 3, /* in the cluster, but left to the host's stack: this node's own addresses, nodes
			       that are not on this link, exempt from masquerading; in `decisions` also the
			       way of pods that go through the stack */
	ROUTE_TUNNEL = 4,  /* pods and addresses of another node, inside of VXLAN to it */
};

/*
 * Value of `routes`. For ROUTE_REMOTE, where and how a packet leaves. For ROUTE_TUNNEL, the same of the packet
 * inside: the VXLAN device is in the uplink's place, and next_hop is the other end of the tunnel.
 */
struct route {
	__u8 kind;		     /* enum route_kind */
	__u8 resolved;		     /* next_hop_mac is known */
	__u16 mtu;		     /* bytes, without the link-layer header */
	__u32 ifindex;		     /* the uplink */
	__u8 next_hop_mac[ETH_ALEN]; /* valid while `resolved` and the agent's lease hold */
	__u8 uplink_mac[ETH_ALEN];
	struct address next_hop; /* the other node's address, for the kernel's neighbour table */
};
_Static_assert(sizeof(struct route) == 36, "route has no hidden padding");

/*
 * Value of `decisions`: what the tables said about packets of one device from one address to another. It
 * holds for as long as `generation` is what it was then.
 */
struct decision {
	struct address source, destination;
	__u32 ingress_ifindex;
	__u32 generation;
	struct route route; /* for ROUTE_LOCAL: ifindex of the pod's device, next_hop_mac and uplink_mac of its ends */
};
_Static_assert(sizeof(struct decision) == 76, "decision has no hidden padding");

/*
 * Why a packet was dropped. One closed list: the value a stage drops with, the metric label, and what
 * `beeline drops` prints. Never renumber and never reuse a number; DROP_MAX ends the list.
 */
enum drop_reason {
	DROP_NONE = 0,
	DROP_TRUNCATED = 1,	      /* shorter than its headers say */
	DROP_MALFORMED = 2,	      /* header fields that no packet can have */
	DROP_NOT_IP = 3,	      /* from a pod, neither IPv4, IPv6 nor ARP; from a tunnel, neither IPv4 nor IPv6 */
	DROP_SPOOFED_SOURCE = 4,      /* from a pod, with a source address that is not its own */
	DROP_WRONG_POD = 5,	      /* from the stack, to a pod device that does not own the destination */
	DROP_UNMASQUERADED = 6,	      /* to the world, still with a pod's address as its source */
	DROP_UNKNOWN_TUNNEL_PEER = 7, /* decapsulated, but not from a node of the cluster */
	DROP_MAX = 8,
};

/* The programs that may drop; with the reason, the index of `drops`. */
enum program {
	PROGRAM_FROM_POD = 0,
	PROGRAM_TO_POD = 1,
	PROGRAM_FROM_WIRE = 2,
	PROGRAM_TO_WIRE = 3,
	PROGRAM_FROM_TUNNEL = 4,
	PROGRAM_TO_TUNNEL = 5,
	PROGRAM_MAX = 6,
};

/* Value of `drops`, one for each CPU. */
struct drop_count {
	__u64 packets;
	__u64 bytes; /* with the link-layer header */
};

/* Bits of skb->mark that Beeline uses. The masquerading rules of package masquerade set MARK_REPLY. */
enum mark {
	MARK_REPLY = 0x00100000, /* a pod's reply to a connection that the world opened: keeps its address */
};

/* The compiler describes in BTF only what data refers to. This refers to the enums that code alone uses. */
const volatile struct abi {
	enum route_kind route_kind;
	enum drop_reason drop_reason;
	enum program program;
	enum mark mark;
} abi __attribute__((used)) = {};
