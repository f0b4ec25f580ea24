/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The protocol of packets that a pod sends by a netkit or macvlan device. Where a device receives a packet, the kernel
 * has set skb->protocol from the Ethernet header. A netkit device runs from_pod before that, and the parent of a
 * macvlan device sends: skb->protocol is what the pod's socket says (AF_PACKET), or 0 (AF_XDP).
 */
#pragma once

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include "lib/net/verdict.h"

/*
 * Sets skb->protocol from the Ethernet header. Programs cannot write it; the kernel does, when it removes the inner
 * one of two VLAN tags. Moves the packet. Returns false if it could not.
 */
GLOBAL_FN bool ethertype_set(struct __sk_buff *skb)
{
	__be16 tag = bpf_htons(ETH_P_8021Q);

	return !bpf_skb_vlan_push(skb, tag, 1) && !bpf_skb_vlan_push(skb, tag, 1) && !bpf_skb_vlan_pop(skb) &&
	       !bpf_skb_vlan_pop(skb);
}
