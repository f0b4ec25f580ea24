/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who sends a packet that leaves by a device: the network namespace, by the kernel's own record. MACs, addresses and
 * marks are the sender's to choose. See docs/decisions/42-macvlan-at-the-parent.md.
 */
#pragma once

#include "lib/net/verdict.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* Kernel types, the part of a name after ___ aside; the offsets are relocated at load. */
struct net {
	__u64 net_cookie;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct sock_common {
	unsigned short skc_family;
	possible_net_t skc_net;
};
struct sock___owner {
	struct sock_common __sk_common;
};
struct net_device {
	int ifindex;
	possible_net_t nd_net;
};
struct dst_entry {
	struct net_device *dev;
};
struct sk_buff {
	struct sock___owner *sk;
	unsigned long _skb_refdst; /* struct dst_entry, with a flag in bit 0 */
	int skb_iif;
};
#pragma clang attribute pop

/* Linux 6.2. Weak: older kernels read with bpf_probe_read_kernel, which takes some 30 ns for each field. */
extern void *bpf_cast_to_kern_ctx(void *context) __weak __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 type) __weak __ksym;

/* Address families (linux/socket.h) of the sockets whose packets have no route. */
#define FAMILY_PACKET 17
#define FAMILY_XDP 44

/*
 * Whether a socket may prove who sends a packet without a route. Packets of other sockets have one, unless somebody who
 * received them has removed it, and the record that they were received, too: ipvlan devices do.
 */
static __always_inline bool owner_may_be(unsigned short family)
{
	return family == FAMILY_PACKET || family == FAMILY_XDP;
}

/* Reads a field of a kernel object; 0 if that fails. */
#define OWNER_READ(field)                                                                                              \
	({                                                                                                             \
		__typeof_unqual__(field) value = 0;                                                                    \
		bpf_probe_read_kernel(&value, sizeof(value), __builtin_preserve_access_index(&(field)));               \
		value;                                                                                                 \
	})

/* Before Linux 6.2. The context of a tc program is the kernel's packet. */
static __noinline __u64 owner_by_reading(struct __sk_buff *skb)
{
	const struct sk_buff *packet = (void *)skb;
	const struct dst_entry *route = (void *)(OWNER_READ(packet->_skb_refdst) & ~1UL);
	const struct net_device *device;
	const struct net *netns = 0;
	const struct sock___owner *sk;

	if (route) {
		device = OWNER_READ(route->dev);
		if (device && OWNER_READ(device->ifindex))
			netns = OWNER_READ(device->nd_net.net);
	} else {
		sk = OWNER_READ(packet->sk);
		if (sk && !OWNER_READ(packet->skb_iif) && owner_may_be(OWNER_READ(sk->__sk_common.skc_family)))
			netns = OWNER_READ(sk->__sk_common.skc_net.net);
	}
	return netns ? OWNER_READ(netns->net_cookie) : 0;
}

/*
 * The cookie of the network namespace that sends the packet, 0 if the kernel has no record.
 *
 * The route comes first: a control socket that the namespaces of a CPU share sends resets and echo replies. The socket
 * of a packet that was received is that of its first sender, while this one may have rewritten it.
 *
 * A deleted route leads to the kernel's blackhole device, of the first network namespace, as long as packets wait with it.
 * That is the only device with index 0.
 */
static __always_inline __u64 owner_of(struct __sk_buff *skb)
{
	const struct net_device *device;
	const struct dst_entry *route;
	const struct sk_buff *packet;
	const struct sock___owner *sk;

	if (!bpf_cast_to_kern_ctx || !bpf_rdonly_cast)
		return owner_by_reading(skb);
	packet = bpf_cast_to_kern_ctx(skb);
	route = (void *)(packet->_skb_refdst & ~1UL);
	if (route) {
		route = bpf_rdonly_cast(route, __builtin_btf_type_id(*route, 1 /* the kernel's */));
		device = route->dev; /* a NULL pointer reads as 0 */
		return device->ifindex ? device->nd_net.net->net_cookie : 0;
	}
	sk = packet->sk;
	if (!sk || packet->skb_iif || !owner_may_be(sk->__sk_common.skc_family))
		return 0;
	return sk->__sk_common.skc_net.net->net_cookie;
}
