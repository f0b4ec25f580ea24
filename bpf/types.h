/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every struct and enum that Go sees: the only ABI between the datapath and the agent. bpf2go makes the Go
 * types from these and those of types_policy.h, so nothing is written twice. Multi-byte fields are in host byte order unless their type
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
	__u8 padding;
	__u16 netns; /* the id that the host's network namespace has for the pod's (RTM_GETNSID), plus 1; 0: not known */
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
			       that are not on this link, exempt from masquerading; in `flow_cache` also the
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

/* Whose policies, or whether flows, have to do with packets between two addresses. */
enum enforce_flag {
	ENFORCE_EGRESS = 1 << 0,    /* the sender is a pod here that policies select */
	ENFORCE_INGRESS = 1 << 1,   /* the receiver is */
	ENFORCE_OBSERVED = 1 << 2,  /* neither need be, but flows tell of it */
	ENFORCE_UNCOUNTED = 1 << 3, /* the same packets are counted at their sender's device */
};

/*
 * The session whose packets last went this way, in `flow_cache`: those that follow it on this CPU need not be looked for. What
 * they were is added to the session when another one takes the place, and about once a second.
 */
struct verdict_cache {
	__be16 source_port, destination_port; /* as the packets have them that go between the decision's addresses */
	__be16 sender_port;		      /* of the session: before the source is translated */
	__u8 protocol;			      /* IP protocol number; 0: there is none */
	__u8 uncounted;			      /* not 0: ENFORCE_UNCOUNTED */
	__u32 revision;			      /* generation[GENERATION_POLICY] when it was judged */
	__u32 until;			      /* as verdict_cache_clock of lib/verdict_cache.h counts */
	__u64 packets, bytes;		      /* not yet added to the session; bytes with the link-layer header */
	struct address sender;		      /* as sender_port */
};
_Static_assert(sizeof(struct verdict_cache) == 48, "permit has no hidden padding");

/*
 * Value of `flow_cache`: what the tables said about packets of one device from one address to another. It
 * holds for as long as `generation` is what it was then.
 */
struct flow_cache_entry {
	struct address source, destination;
	__u32 scope; /* a device, with an enum flow_cache_scope */
	__u32 generation;
	__u32 expires; /* 0: never; else in units of 2^30 ns of CLOCK_MONOTONIC: it follows from the kernel's routes. Of what a
			  tunnel brought, tunnel_local_hash of lib/tunnel.h. Of what the stack delivers, the device that brought it */
	__u32 nat_checks;   /* enum nat_check; 0: never translated */
	struct route route; /* for ROUTE_LOCAL: ifindex of the pod's device, next_hop_mac and uplink_mac of its ends */
	__u32 enforce;	    /* enum enforce_flag; 0: nobody asks for policies or for flows */
	struct verdict_cache verdict;
};
_Static_assert(sizeof(struct flow_cache_entry) == 136, "decision has no hidden padding");

/* Indices of `generation`. */
enum generation_index {
	GENERATION_TABLES =
		0, /* counted up by the agent, after every change of `endpoints`, `routes` and `policy_pods` */
	GENERATION_PODS = 1, /* counted up by the datapath, after adding to `nat_pods` */
	GENERATION_POLICY =
		2, /* counted up by the agent, after a change that may forbid what was allowed: the revision */
	GENERATION_IDENTITIES =
		3, /* counted up by the agent, after every change of `identities` and `identity_cidrs` */
	GENERATION_MAX = 4,
};

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
	DROP_INVALID_DESTINATION = 5, /* from the stack, to a pod device that does not own the destination */
	DROP_NO_MASQUERADE_ADDRESS = 6,	    /* to the world, still with a pod's address as its source */
	DROP_UNKNOWN_TUNNEL_PEER = 7,	    /* decapsulated, but not from a node of the cluster */
	DROP_NAT_PORTS_EXHAUSTED = 8,	    /* every port that translation may use towards this destination is taken */
	DROP_NAT_TABLE_FULL = 9,	    /* `nat` has no room for another one */
	DROP_NO_LOCAL_BACKEND = 10,	    /* a traffic policy Local keeps it here, and no backend is here */
	DROP_SOURCE_NOT_ALLOWED = 11,	    /* not in the Service's loadBalancerSourceRanges */
	DROP_FRAGMENT_WITHOUT_FIRST = 12,   /* a later fragment, and the first one with the ports has not been seen */
	DROP_NAT_UNSUPPORTED_PROTOCOL = 13, /* to the world, of a protocol that cannot share the node's address */
	DROP_NO_ROUTE = 14,		    /* translated, and the node has no route to where it should go */
	DROP_ICMP_RATELIMITED = 15,	    /* refused or too big, and of a kind or in a number that is not answered */
	DROP_INGRESS_POLICY = 16,	    /* no NetworkPolicy that selects the receiving pod allows it */
	DROP_EGRESS_POLICY = 17,	    /* no NetworkPolicy that selects the sending pod allows it */
	DROP_INTERNAL_ERROR = 18,	    /* cannot be: there is no place to judge the packet in */
	DROP_INGRESS_POLICY_PENDING =
		19,			 /* a policy of the receiving pod is not known or could not be put into force */
	DROP_EGRESS_POLICY_PENDING = 20, /* the same, of the sending pod */
	DROP_BAD_FRAGMENT =
		21, /* a first fragment without the whole transport header, a later one that lies over it, or a second first one with other ports */
	DROP_UNREADABLE =
		22, /* more IPv6 extension headers than are read, and a NetworkPolicy selects the pod or the node itself would read them */
	DROP_INVALID_SOURCE = 23, /* from an uplink or a tunnel, with a source that cannot come from there */
	DROP_TUNNEL_PORT = 24,	  /* to the tunnels' UDP port, and not from a node to another one's InternalIP */
	DROP_FORGED_ERROR = 25,	  /* an ICMP error from a pod, about a packet that was not to the pod */
	DROP_MAX = 26,
};

/* The programs that may drop; with the reason, the index of `drops`. */
enum program {
	PROGRAM_FROM_POD = 0,
	PROGRAM_TO_POD = 1,
	PROGRAM_FROM_WIRE = 2,
	PROGRAM_TO_WIRE = 3,
	PROGRAM_FROM_TUNNEL = 4,
	PROGRAM_TO_TUNNEL = 5,
	PROGRAM_WIRE_XDP = 6,
	PROGRAM_MAX = 7,
};

/* Value of `drops`, one for each CPU. */
struct drop_count {
	__u64 packets;
	__u64 bytes; /* with the link-layer header */
};

/* Key of `services`: where a Service answers. */
struct frontend {
	struct address address;
	__be16 port;
	__u8 protocol; /* IP protocol number */
	__u8 padding;
};
_Static_assert(sizeof(struct frontend) == 20, "frontend is a map key");

/* What becomes of connections to a Service that has no backend on the side they come from. */
enum no_backend {
	NO_BACKEND_REJECT = 0, /* TCP RST or ICMP port unreachable: the Service has no endpoints */
	NO_BACKEND_DROP = 1,   /* a traffic policy Local, and no endpoint is here */
	NO_BACKEND_PASS = 2,   /* the address does not answer on this side at all: the stack's */
};

/* The backends that connections from one side may go to. */
struct backend_set {
	__u32 id;	   /* of `backends` */
	__u32 maglev;	   /* table of `maglev`; sets of the same addresses share one */
	__u32 maglev_size; /* entries of the table, a prime; 0: there is none, any backend will do */
	__u16 count;	   /* backends have indices below this */
	__u8 maglev_width; /* bytes of an entry: 1 or 2, little endian */
	__u8 no_backend;   /* enum no_backend, for a count of 0 */
};
_Static_assert(sizeof(struct backend_set) == 16, "backend_set has no hidden padding");

enum service_flag {
	SERVICE_AFFINITY = 1 << 0, /* connections of one client go to one backend (sessionAffinity: ClientIP) */
	SERVICE_SOURCES = 1 << 1,  /* only for sources in `service_sources` */
	SERVICE_DSR = 1 << 2,	   /* from outside: backends of other nodes answer the client directly */
};

/* Value of `services`. Replaced as a whole: a connection sees the old backends or the new ones, never some of each. */
struct service {
	__u32 id;	/* of affinity, sources and counts: the same for all frontends of one port of a Service */
	__u32 affinity; /* seconds that a client stays with its backend after its last connection */
	__u16 flags;	/* enum service_flag */
	__u16 padding;
	struct backend_set internal; /* for pods and the node itself */
	struct backend_set external; /* for what arrives from the wire */
};
_Static_assert(sizeof(struct service) == 44, "service has no hidden padding");

/* Key of `backends`. Sets are written before a service refers to them and deleted after. */
struct backend_key {
	__u32 set;
	__u32 index;
};

struct backend {
	struct address address;
	__be16 port;
	__u16 padding;
};
_Static_assert(sizeof(struct backend) == 20, "backend has no hidden padding");

/* Key of `maglev`: a table's entries number block * MAGLEV_BLOCK / width and following. */
struct maglev_key {
	__u32 table;
	__u32 block;
};

#define MAGLEV_BLOCK 192

/* Value of `maglev`: indices of backends, each of the width that the set says. */
struct maglev_block {
	__u8 entries[MAGLEV_BLOCK];
};

/* Who a client is for session affinity. */
enum client_kind {
	CLIENT_ADDRESS = 0,
	CLIENT_NETNS = 1, /* the cookie of the socket's network namespace, in the address's first two words */
};

/* Key of `affinities`. */
struct client {
	struct address address;
	__u32 service;
	__u32 kind; /* enum client_kind */
};
_Static_assert(sizeof(struct client) == 24, "client is a map key");

/* Value of `affinities`: where the client's last connection went. */
struct affinity {
	__u64 used; /* CLOCK_MONOTONIC, ns */
	__u32 set;  /* `index` holds in this set; in another one the backend is looked for */
	__u32 index;
	struct backend backend;
	__u32 padding;
};
_Static_assert(sizeof(struct affinity) == 40, "affinity has no hidden padding");

/* Key of `service_sources`: prefix_len counts the 32 bits of the service too. */
struct source_key {
	__u32 prefix_len;
	__u32 service; /* most significant byte first, as a trie compares bits */
	struct address address;
};
_Static_assert(sizeof(struct source_key) == 24, "source_key is a map key");

/* Value of `service_counts`, one for each CPU. */
struct service_count {
	__u64 connections; /* that got a backend */
	__u64 rejected;	   /* for want of a backend or because of their source */
};

/* Key of `nat` and `nat_pending`: a packet's addresses and ports before translation. For ICMP echo, the identifier is the port of who asks, and 0 that of who answers. */
struct tuple {
	struct address source, destination;
	__be16 source_port, destination_port;
	__u8 protocol;
	__u8 padding[3];
};
_Static_assert(sizeof(struct tuple) == 40, "tuple is a map key");

enum nat_flag {
	NAT_INITIATOR = 1 << 0, /* this direction opened the connection */
	NAT_FIN = 1 << 1,	/* this direction has sent FIN (TCP) or part of a SHUTDOWN (SCTP) */
	NAT_RESET = 1 << 2,	/* RST (TCP) or ABORT (SCTP) was the last that was seen in this direction */
	NAT_DSR = 1 << 3,	/* DSR: forwarded as it is to the node of `destination`; there is no other direction */
	NAT_UNCHANGED = 1 << 4, /* not translated: known so that its answers are not masqueraded */
	NAT_TIME_WAIT = 1 << 5, /* TCP, both: the opener has a port from here, and the other end sent FIN first */
	NAT_STREAM = 1 << 6,	/* without TCP's flags: had a packet in this direction NAT_STREAM_AGE after it began */
};

/*
 * Value of `nat` and `nat_pending`: what packets with the key's addresses and ports get instead. The packets
 * of the other direction have an entry of their own, whose key is this value turned around.
 */
struct nat_entry {
	struct address source, destination;
	__be16 source_port, destination_port;
	__u32 service; /* id; 0 for masquerading */
	__u64 seen; /* CLOCK_MONOTONIC, ns: the last packet, to the second; 0 or 1: SYN or INIT to this end are not answered */
	__u8 flags;    /* enum nat_flag */
	__u8 packets;  /* of an opening, up to 255 */
	__u16 created; /* CLOCK_MONOTONIC in units of 2^28 ns: the first packet */
	__u32 owner;   /* whose share it is of: see lib/nat_share.h */
};
_Static_assert(sizeof(struct nat_entry) == 56, "connection has no hidden padding");

/* Element of `nat_slots` and `pending_slots`: a connection of `nat` or `nat_pending`. */
struct nat_slot {
	struct tuple key; /* of the initiator's packets; protocol 0: the slot is free */
	__u32 owner;
	__u32 lock; /* not 0: a CPU is at work on it */
};
_Static_assert(sizeof(struct nat_slot) == 48, "nat_slot has no hidden padding");

/* Elements of `nat_owners`: so many for pods, as many for clients from outside, and one for all of these. A power of two. */
#define NAT_OWNERS 4096
#define NAT_OWNERS_EXTERNAL (2 * NAT_OWNERS)

/* Element of `nat_owners`: how many slots an owner has. */
struct nat_owner {
	__u32 established; /* of `nat_slots` */
	__u32 pending;	   /* of `pending_slots` */
};
_Static_assert(sizeof(struct nat_owner) == 8, "nat_owner has no hidden padding");

/* Seconds without a packet after which the agent removes connections. */
enum timeout {
	TIMEOUT_UNREPLIED = 60, /* of sessions: no answer yet */
	TIMEOUT_TCP =
		21600, /* established: at least 2 h 4 min (RFC 5382, REQ-5). All that is TCP's is SCTP's as well */
	TIMEOUT_TCP_CLOSED = 10,    /* FIN or RST in both directions */
	TIMEOUT_TCP_TIME_WAIT = 60, /* NAT_TIME_WAIT: TIME-WAIT of Linux */
	TIMEOUT_TCP_CLOSING = 240,  /* in one direction: TCP's own 2 MSL (RFC 9293, 3.4.2) */
	TIMEOUT_UDP = 120,	    /* of sessions and sockets, UDP: at least 2 min (RFC 4787, REQ-5) */
	TIMEOUT_ICMP = 60,	    /* of sessions, ICMP: at least 60 s (RFC 5508, REQ-2) */
	TIMEOUT_FRAGMENTS = 60,	    /* pieces of an IP packet come within (RFC 8200, 4.5) */
	/* Of translated connections, as Linux has them (net/netfilter/nf_conntrack_proto_*.c): */
	TIMEOUT_NAT_SYN_SENT = 120,   /* TCP, SYN without a reply: SYN_SENT */
	TIMEOUT_NAT_SYN_RECV = 60,    /* TCP, a reply and no more: SYN_RECV */
	TIMEOUT_NAT_UDP = 30,	      /* UDP, until it is a stream */
	TIMEOUT_NAT_UDP_STREAM = 120, /* UDP, NAT_STREAM in both directions: at least 2 min (RFC 4787, REQ-5) */
	TIMEOUT_NAT_ICMP = 30,	      /* ICMP echo, where RFC 5508, REQ-2 asks for 60 s */
};

/* Value of `uplinks`: a device through which the world is reached. Addresses are zero where it has none of the family. */
struct uplink {
	struct address ipv4, ipv6; /* what masquerading gives */
	__u8 mac[ETH_ALEN];
	__u16 mtu;
};
_Static_assert(sizeof(struct uplink) == 40, "uplink has no hidden padding");

/* Who has sent a packet, for what each sender has a share of: see lib/sender.h. */
struct sender {
	__u32 device; /* that brought it to the node: a pod's, or one that the stack forwards from; 0: not told apart by devices */
	__u32 external; /* one of those outside, by the prefix of the source; 0: the device's pod, or the node itself */
};

/* Key of `fragments`: a place of a sender, which the packet's addresses and identification choose. */
struct fragment_key {
	struct sender sender;
	__u32 slot;
};
_Static_assert(sizeof(struct fragment_key) == 12, "fragment_key is a map key");

/* Value of `fragments`: an IP packet that came in pieces, and the ports that its first piece has. */
struct fragment {
	__u64 seen; /* CLOCK_MONOTONIC, ns: the first piece */
	struct address source, destination;
	__u32 id;
	__u32 protocol;
	__be16 source_port, destination_port;
	__u32 complete; /* not 0: the last piece has come */
};
_Static_assert(sizeof(struct fragment) == 56, "fragment has no hidden padding");

/* What an ICMP error says, as far as each kind has a share of its own. */
enum icmp_error_kind {
	ICMP_ERROR_OTHER = 0,	/* that nobody is there, or that a packet has no hop left */
	ICMP_ERROR_TOO_BIG = 1, /* what fits the way (RFC 1191, RFC 8201): without it a connection stands still */
};

/* Key of `icmp_ratelimit`: who is told of packets. */
struct icmp_ratelimit_key {
	struct sender sender;
	__u32 kind; /* enum icmp_error_kind */
};
_Static_assert(sizeof(struct icmp_ratelimit_key) == 12, "refusal_key is a map key");

/* Value of `icmp_ratelimit`: the errors sent in the present second. */
struct icmp_ratelimit_entry {
	__u64 since; /* CLOCK_MONOTONIC, ns */
	__u64 sent;
};

/*
 * Value of `sock_storage`: what was put in the place of a Service's address, kept with the socket. For a connected one, by connect;
 * for an unconnected one, by the last sendmsg to a Service. Those of TCP have it where they have no element of `sock_tcp`.
 */
struct sock_entry {
	struct address service, backend;
	__be16 service_port, backend_port;
	__u32 set;  /* that the backend was in when it was last looked for */
	__u64 used; /* CLOCK_MONOTONIC, ns: the last sendmsg of an unconnected socket, to the tick */
};
_Static_assert(sizeof(struct sock_entry) == 48, "peer has no hidden padding");

/* How many Services an unconnected socket remembers besides the last one. A power of two. With 16 an element takes 1 KiB of the kernel's memory. */
#define SOCK_UDP_ENTRIES 16

/*
 * Value of `sock_udp`: what was in `sock_storage` before. The order of a slot has the slot's own index as its remainder, so that who
 * has found the first or the last one has its index: the verifier would else follow every index by itself.
 */
struct sock_udp_entries {
	__u64 now; /* what was last put here, in steps of SOCK_UDP_ENTRIES */
	/* when each was; below 2 * SOCK_UDP_ENTRIES: it is replaced first, and its backend's answers are the backend's own */
	__u64 since[SOCK_UDP_ENTRIES];
	struct sock_entry entry[SOCK_UDP_ENTRIES];
};
_Static_assert(sizeof(struct sock_udp_entries) == 904, "earlier has no hidden padding");

/* Elements of `sock_tcp`, 1.5 MiB in all. A power of two. */
#define SOCK_TCP_MAX 32768

/* Element of `sock_tcp`: what was put in the place of a Service's address, for the TCP socket whose cookie has the element's index as its lowest bits. */
struct sock_tcp_entry {
	__u64 cookie; /* of the socket; 0: of none */
	struct address service, backend;
	__be16 service_port, backend_port;
	__u32 padding;
};
_Static_assert(sizeof(struct sock_tcp_entry) == 48, "stream has no hidden padding");

#include "types_policy.h"

/* The compiler describes in BTF only what data refers to. This refers to what code alone uses. */
const volatile struct abi {
	enum route_kind route_kind;
	enum drop_reason drop_reason;
	enum program program;
	enum no_backend no_backend;
	enum service_flag service_flag;
	enum client_kind client_kind;
	enum nat_flag nat_flag;
	enum timeout timeout;
	enum generation_index generation_index;
	enum enforce_flag enforce_flag;
	enum identity identity;
	enum ct_flag ct_flag;
	enum ct_ring ct_ring;
	enum icmp_error_kind icmp_error_kind;
	struct flush_pod_args flush_pod_args;
	enum flow_kind flow_kind;
	enum flow_mode flow_mode;
	enum flow_loss flow_loss;
	struct flow_event flow_event;
} abi __attribute__((used)) = {};
