/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rewrites SCTP ports (RFC 9260). The checksum is a CRC32c over the packet without a pseudo header. A CRC is
 * linear: the change depends only on the changed words and the number of bytes that follow, so the payload is not
 * read.
 */
#pragma once

#include "lib/net/checksum.h"

/* The common header (RFC 9260, 3.1). */
struct sctp_header {
	__be32 ports; /* source and destination */
	__be32 tag;
	__u32 check; /* least significant byte first (Appendix A) */
};
_Static_assert(sizeof(struct sctp_header) == 12, "the common header of SCTP has 12 bytes");

/* The CRC32c polynomial without x^32. The most significant bit is the coefficient of x^0. */
#define SCTP_POLYNOMIAL 0x82f63b78

/* x^(8 * n * 16^i) modulo the polynomial, at [i][n]: the factor of a CRC that is followed by n * 16^i more bytes. */
static const __u32 sctp_powers[4][16] = {
	{0x80000000, 0x00800000, 0x00008000, 0x00000080, 0x82f63b78, 0xfbc3faf9, 0x8b277743, 0x52a0c93f, 0x6ea2d55c,
	 0x1c08b7d6, 0xf56e0ef4, 0x34019664, 0xa66805eb, 0x7a1f6b24, 0xe75d06aa, 0xc94ec098},
	{0x80000000, 0x18b8ea18, 0x510ac59a, 0xb2dea967, 0xb82be955, 0x36c41f1c, 0x19b29a35, 0xc9e90b9e, 0xb8fdb1e7,
	 0xe55ef1f3, 0x1fe0b5c3, 0xe0553f1e, 0x18e4a304, 0x2b830011, 0x56993a31, 0x0246e2e6},
	{0x80000000, 0x88e56f72, 0x74c360a4, 0x631bb273, 0xe4172b16, 0x71892b1b, 0x835305c9, 0x196b1eae, 0x0d65762a,
	 0xafc81338, 0xb5a50ab7, 0xf373c3ac, 0x5f60970f, 0xd46d3063, 0x3a5275ea, 0x02331c01},
	{0x80000000, 0x35d73a62, 0x28461564, 0x43eefc9f, 0xbf455269, 0x5edcdeb9, 0x65059450, 0x4e6f41a4, 0xe2ea32dc,
	 0xf5b95b32, 0x695a4c87, 0xf204502c, 0x9a4f01b6, 0x941a0916, 0x4303cb97, 0x4c3d3d65},
};

/* Multiplies two polynomials. Without branches: the verifier would follow each both ways. */
GLOBAL_FN __u32 sctp_multiply(__u32 a, __u32 b)
{
	__u32 product = 0;

	for (int i = 0; i < 32; i++) {
		product ^= b & -(a >> 31);
		a <<= 1;
		b = b >> 1 ^ (SCTP_POLYNOMIAL & -(b & 1));
	}
	return product;
}

/* How the checksum of a packet of `length` bytes changes if its first four bytes change by `changed` (XOR). */
static __always_inline __u32 sctp_check_change(__u32 changed, __u32 length)
{
	for (int i = 0; i < 4; i++)
		changed = sctp_multiply(changed, sctp_powers[i][length >> 4 * i & 15]);
	return changed;
}

/* Chunk header (RFC 9260, 3.2). */
struct sctp_chunk_header {
	__u8 type, flags;
	__be16 length; /* without padding */
};

/* Chunks of a first fragment that are read. */
#define SCTP_CHUNKS_MAX 8

/*
 * The length of the whole packet, computed from the chunks of its first fragment, which ends at `end`; 0 if
 * unknown. SCTP leaves fragmentation to IP only for a chunk that does not fit a packet, and that chunk is the last
 * one.
 */
static __always_inline __u32 sctp_length_of_chunks(struct __sk_buff *skb, __u32 offset, __u32 end)
{
	__u32 at = offset + sizeof(struct sctp_header), length;
	struct sctp_chunk_header h;

	for (int i = 0; i < SCTP_CHUNKS_MAX && at < end; i++) {
		if (at + sizeof(h) > end || bpf_skb_load_bytes(skb, at, &h, sizeof(h)))
			return 0;
		length = bpf_ntohs(h.length);
		if (length < sizeof(h))
			return 0;
		at += (length + 3) & ~3U;
	}
	return at < end ? 0 : at - offset;
}

/*
 * Rewrites the ports of an SCTP packet or first fragment. A checksum that is still to be computed
 * (CHECKSUM_PARTIAL, and every GSO packet) is 0 and stays 0. Returns 0 on success.
 */
GLOBAL_FN int sctp_set_ports(struct __sk_buff *skb, __u32 offset, __be32 ports, bool ipv4, bool in_fragments)
{
	const __u32 flags = BPF_F_RECOMPUTE_CSUM;
	struct sctp_header h;
	__u32 end, length;
	__be16 ip_length;

	if (bpf_skb_load_bytes(skb, offset, &h, sizeof(h)) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + (ipv4 ? 2 : 4), &ip_length, sizeof(ip_length)))
		return -1;
	end = ETH_HLEN + (ipv4 ? 0 : sizeof(struct ipv6hdr)) + bpf_ntohs(ip_length);
	length = in_fragments ? sctp_length_of_chunks(skb, offset, end) : end - offset;
	if (!length)
		return -1;
	if (h.check || !checksum_pending(skb)) {
		h.check ^= sctp_check_change(h.ports ^ ports, length);
		if (bpf_skb_store_bytes(skb, offset + __builtin_offsetof(struct sctp_header, check), &h.check,
					sizeof(h.check), flags))
			return -1;
	}
	return bpf_skb_store_bytes(skb, offset, &ports, sizeof(ports), flags);
}
