// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The three programs of the packet generator: one makes frames, two count those that came through. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define PROTOCOL_UDP 17

typedef _Bool bool;
enum { false, true };

/* Verdicts of tcx, of Linux 6.6: the headers here are older. */
enum { TCX_NEXT = -1, TCX_DROP = 2 };

struct udp {
	__be16 source, destination, length;
	__sum16 checksum;
};

/* 60 bytes: with the check sequence, which a veth pair has none of, the shortest frame that Ethernet has. */
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

/* The frame of flow 0, and the sums of its headers without what differs between flows and without the checksums. */
const volatile __u64 template[8];
const volatile __u32 network_sum, transport_sum;
const volatile bool ipv6;

/* Flow n has address n / ports and port n % ports, each counted from the template's. */
const volatile __u32 flows = 1, ports = 1;
const volatile __u32 first_address; /* its last 32 bits, in the machine's byte order */
const volatile __u16 first_port;
const volatile __u32 device; /* to which frames are redirected */

/* What one run may do; Go sets all of it before. Times are in ns since the first frame. */
struct {
	__u64 interval; /* between frames, in 1/1024 ns; 0: as fast as it goes */
	__u64 span;	/* how long frames are made */
	__u64 limit;	/* how many frames are made */
} run;

struct {
	__u64 epoch; /* when the first frame was made */
	__u64 due;   /* when the next one is, in 1/1024 ns since then */
	__u64 last;  /* when the last one was made, in ns since then */
	__u64 sent;
} state;

/* Frames at a rate come in bursts, those of 2^15 ns together, as from a network card that moderates its interrupts; one
 * by one they would cost whoever takes them in a wake-up each. After a pause of the generator's own, frames of more than
 * two such times are left out: they would be too many for a veth's ring of 256.
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

/* due says whether it is time for a frame. */
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

/* A buffer comes back as others have left it, so all of the frame is written each time. */
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

/* Whose packets are counted. */
const volatile __be32 backend4;
const volatile struct in6_addr backend6;
const volatile __be16 backend_port;
const volatile __u32 onward; /* device on which they go on; 0: they end here */

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

/* On the device at the far end of the forwarding node's wire. */
SEC("xdp")
int arrive_wire(struct xdp_md *ctx)
{
	if (!is_backend((void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_PASS;
	__sync_fetch_and_add(&arrived, 1);
	return onward ? bpf_redirect(onward, 0) : XDP_DROP;
}

/* On a device that packets reach as the stack sees them: a pod's, or a node's. */
SEC("tcx/ingress")
int arrive_stack(struct __sk_buff *skb)
{
	if (!is_backend((void *)(long)skb->data, (void *)(long)skb->data_end))
		return TCX_NEXT;
	__sync_fetch_and_add(&arrived, 1);
	return TCX_DROP;
}

/* GPL-only helpers need a licence the kernel knows; it means GPL-2.0-only OR BSD-2-Clause. */
char packetgen_license[] SEC("license") = "Dual BSD/GPL";
