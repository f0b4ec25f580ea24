// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The packet generator: one program sends frames, two count those that arrive. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define PROTOCOL_UDP 17

typedef _Bool bool;
enum { false, true };

/* tcx return codes (Linux 6.6), which the headers here lack. */
enum { TCX_NEXT = -1, TCX_DROP = 2 };

struct udp {
	__be16 source, destination, length;
	__sum16 checksum;
};

/* 60 bytes: the shortest Ethernet frame without its check sequence, which veth does not have. */
struct frame4 {
	struct ethhdr eth;
	struct iphdr ip;
	struct udp udp;
	__u8 payload[18];
} __attribute__((packed));

struct frame6 {
	struct ethhdr eth;
	struct ipv6hdr ip;
	struct udp udp;
} __attribute__((packed));

/* The frame of flow 0, and the sums of its headers without checksums and fields that differ between flows. */
const volatile __u64 template[8];
const volatile __u32 network_sum, transport_sum;
const volatile bool ipv6;

/* Flow n uses address n / ports and port n % ports, relative to those of the template. */
const volatile __u32 flows = 1, ports = 1;
const volatile __u32 first_address; /* last 32 bits of the first source address, host byte order */
const volatile __u16 first_port;
const volatile __u32 device; /* frames are redirected to it */

/* Limits of a run, set by Go before it. Times are in ns since the first frame. */
struct {
	__u64 interval; /* between frames, in 1/1024 ns; 0: as fast as possible */
	__u64 span;	/* duration of the run */
	__u64 limit;	/* number of frames */
} run;

struct {
	__u64 epoch; /* time of the first frame */
	__u64 due;   /* when the next frame is due, in 1/1024 ns since the first */
	__u64 last;  /* time of the last frame, in ns since the first */
	__u64 sent;
} state;

/*
 * At a fixed rate, frames are sent in bursts of 2^15 ns, as by a network card with interrupt moderation. Single
 * frames would wake the receiver each time. After a pause of the generator, frames of more than two bursts are
 * skipped: they would overflow the veth ring of 256.
 */
#define BURST 15

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline __u32 halves(__u32 be)
{
	return (be & 0xffff) + (be >> 16);
}

/* Whether a frame is due. */
static __always_inline bool due(void)
{
	__u64 now = bpf_ktime_get_ns();
	if (!state.epoch)
		state.epoch = now;
	now -= state.epoch;
	if (now >= run.span || state.sent >= run.limit)
		return false;
	if (run.interval) {
		__u64 slot = now >> BURST << BURST << 10, slack = 2ull << BURST << 10;
		if (slot < state.due)
			return false;
		if (slot - state.due > slack)
			state.due = slot - slack;
		state.due += run.interval;
	}
	state.last = now;
	return true;
}

/* The buffer contains an earlier frame that others have changed, so the whole frame is written. */
static __always_inline void fill(void *data, int length)
{
	for (int i = 0; i < length / 8; i++)
		((__u64 *)data)[i] = template[i];
	*(__u32 *)(data + length / 8 * 8) = template[length / 8];
	if (length % 8 > 4)
		*(__u16 *)(data + length / 8 * 8 + 4) = template[length / 8] >> 32;
}

SEC("xdp")
int offer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (!due())
		return XDP_DROP;
	__u32 flow = state.sent % flows;
	__be32 address = bpf_htonl(first_address + flow / ports);
	__be16 port = bpf_htons(first_port + flow % ports);
	__u32 transport = transport_sum + halves(address) + port;
	if (ipv6) {
		struct frame6 *frame = data;
		if ((void *)(frame + 1) > end)
			return XDP_ABORTED;
		fill(data, sizeof(*frame));
		frame->ip.saddr.in6_u.u6_addr32[3] = address;
		frame->udp.source = port;
		frame->udp.checksum = fold(transport) ?: 0xffff;
	} else {
		struct frame4 *frame = data;
		if ((void *)(frame + 1) > end)
			return XDP_ABORTED;
		fill(data, sizeof(*frame));
		frame->ip.saddr = address;
		frame->ip.check = fold(network_sum + halves(address));
		frame->udp.source = port;
		frame->udp.checksum = fold(transport) ?: 0xffff;
	}
	state.sent++;
	return bpf_redirect(device, 0);
}

/* The destination whose packets are counted. */
const volatile __be32 backend4;
const volatile struct in6_addr backend6;
const volatile __be16 backend_port;
const volatile __u32 onward; /* redirects counted packets to this device; 0: drops them */

__u64 arrived;

static __always_inline bool is_backend(void *data, void *end)
{
	if (ipv6) {
		struct frame6 *frame = data;
		if ((void *)(frame + 1) > end || frame->eth.h_proto != bpf_htons(ETH_P_IPV6) ||
		    frame->ip.nexthdr != PROTOCOL_UDP)
			return false;
		for (int i = 0; i < 4; i++)
			if (frame->ip.daddr.in6_u.u6_addr32[i] != backend6.in6_u.u6_addr32[i])
				return false;
		return frame->udp.destination == backend_port;
	}
	struct frame4 *frame = data;
	return (void *)(frame + 1) <= end && frame->eth.h_proto == bpf_htons(ETH_P_IP) && frame->ip.ihl == 5 &&
	       frame->ip.protocol == PROTOCOL_UDP && frame->ip.daddr == backend4 &&
	       frame->udp.destination == backend_port;
}

/* At the far end of the forwarding node's wire. */
SEC("xdp")
int arrive_wire(struct xdp_md *ctx)
{
	if (!is_backend((void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_PASS;
	__sync_fetch_and_add(&arrived, 1);
	return onward ? bpf_redirect(onward, 0) : XDP_DROP;
}

/* At a device of a pod or a node, after the kernel stack. */
SEC("tcx/ingress")
int arrive_stack(struct __sk_buff *skb)
{
	if (!is_backend((void *)(long)skb->data, (void *)(long)skb->data_end))
		return TCX_NEXT;
	__sync_fetch_and_add(&arrived, 1);
	return TCX_DROP;
}

/*
 * The kernel requires a GPL-compatible licence string for GPL-only helpers. It stands for GPL-2.0-only OR
 * BSD-2-Clause.
 */
char packetgen_license[] SEC("license") = "Dual BSD/GPL";
