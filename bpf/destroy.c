// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Destroys UDP sockets that are connected to a removed backend, so that their applications get an error and
 * reconnect. An object of its own: it needs Linux 6.5.
 */
#include "map.h"
#include "types.h"

/* Kernel types; offsets are relocated at load. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	volatile unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
};

struct inet_sock {
	struct sock sk;
};

struct udp_sock {
	struct inet_sock inet;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
};

#pragma clang attribute pop

/* Linux 6.5. */
extern int bpf_sock_destroy(struct sock_common *socket) __ksym;

/* Shared with the datapath: see maps.h. */
MAP(sock_storage, SK_STORAGE, 0, BPF_F_NO_PREALLOC, int, struct sock_entry);

/* Removed backends, while their sockets are destroyed. Key: backend. Writer: agent. */
MAP(stale_backends, HASH, 65536, BPF_F_NO_PREALLOC, struct backend, __u8);

/* Runs for each UDP socket of the reader's network namespace. Writes one byte for each socket that it destroys. */
SEC("iter/udp")
int destroy_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *socket = ctx->udp_sk;
	struct backend backend = {};
	const struct sock_entry *p;
	__u8 one = 1;

	if (!socket || socket->inet.sk.__sk_common.skc_state != BPF_TCP_ESTABLISHED)
		return 0;
	p = bpf_sk_storage_get(&sock_storage, socket, 0, 0);
	if (!p)
		return 0; /* not connected to a Service */
	backend.address = p->backend;
	backend.port = p->backend_port;
	if (bpf_map_lookup_elem(&stale_backends, &backend) && !bpf_sock_destroy((struct sock_common *)socket))
		bpf_seq_write(ctx->meta->seq, &one, sizeof(one));
	return 0;
}

/*
 * The kernel requires a GPL-compatible licence string for GPL-only helpers. It stands for GPL-2.0-only OR
 * BSD-2-Clause.
 */
char datapath_license[] SEC("license") = "Dual BSD/GPL";
