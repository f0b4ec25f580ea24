/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets that from_pod has handled at a netkit device and that pass another program on their way. from_pod has
 * validated, translated and evaluated them; the other program lets them pass, or it would do so twice.
 */
#pragma once

#include "config.h"
#include "lib/net/packet.h"

/*
 * Whether the program runs while a device receives the packet. The kernel has then set the ingress device to it.
 * While a pod sends by a netkit device there is none: the kernel clears it between network namespaces.
 */
static __always_inline bool skb_is_received(const struct __sk_buff *skb)
{
	return !config_netkit || skb->ingress_ifindex == skb->ifindex;
}

/*
 * Marks the packet for the egress program of the device that it is redirected to. The control block belongs to the
 * program's layer, unlike skb->mark, which a pod can set. Between the two programs no other code writes it. The
 * number is random: what a protocol or a program of a pod has left in the control block does not match it. Where the
 * device has no program that takes the mark, there must be none: a pod with programs of its own could read it.
 */
static __always_inline void handled_set(struct __sk_buff *skb)
{
	skb->cb[0] = config_handled;
	skb->cb[1] = config_handled >> 32;
}

/* Whether a pod sends the packet by a netkit device: the kernel runs egress programs where it is redirected to. */
static __always_inline bool handled_at_netkit(const struct packet *p)
{
	return config_netkit && p->program == PROGRAM_FROM_POD && !skb_is_received(p->skb);
}

/* Whether from_pod has handled the packet. Removes the mark: a pod with programs of its own can read it. */
static __always_inline bool handled_take(struct __sk_buff *skb)
{
	if (skb->cb[0] != (__u32)config_handled || skb->cb[1] != config_handled >> 32)
		return false;
	skb->cb[0] = skb->cb[1] = 0;
	return true;
}

/*
 * Marks a frame for the program that sees it next. A frame that leaves by a device was checked by its program: the
 * device may be a VLAN device, and the program of the device below takes the mark. A frame that a parent of macvlan
 * devices receives for the node: from_wire takes the mark. Another number than that of handled_set.
 */
static __always_inline void checked_set(struct __sk_buff *skb)
{
	skb->cb[0] = ~(__u32)config_handled;
	skb->cb[1] = ~(__u32)(config_handled >> 32);
}

/* Whether the frame is marked by checked_set. Removes the mark. */
static __always_inline bool checked_take(struct __sk_buff *skb)
{
	if (skb->cb[0] != ~(__u32)config_handled || skb->cb[1] != ~(__u32)(config_handled >> 32))
		return false;
	skb->cb[0] = skb->cb[1] = 0;
	return true;
}
