// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Destroys sockets that met on one node and whose connection policies no longer allow, so that their applications
 * get an error. An object of its own: it needs Linux 6.5.
 */
#include "types.h"
#include "maps_same_node.h"

/* Kernel types; offsets are relocated at load. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	volatile unsigned char skc_state;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

/* Linux 6.5. */
extern int bpf_sock_destroy(struct sock_common *socket) __ksym;

/* Runs for each TCP socket of the reader's network namespace. Writes one byte for each socket that it destroys. */
SEC("iter/tcp")
int destroy_same_node(struct bpf_iter__tcp *ctx)
{
	struct sock_common *socket = ctx->sk_common;
	const struct same_node_sock *s;
	const __u64 *revoked;
	const void *full;
	struct tuple key;
	__u8 one = 1;

	if (!socket)
		return 0;
	full = bpf_skc_to_tcp_sock(socket);
	s = full ? bpf_sk_storage_get(&sn_storage, (void *)full, 0, 0) : 0;
	if (!s)
		return 0;
	key = s->session;
	revoked = bpf_map_lookup_elem(&sn_revoked, &key);
	if (!revoked || *revoked < s->joined)
		return 0;
	if (!bpf_sock_destroy(socket))
		bpf_seq_write(ctx->meta->seq, &one, sizeof(one));
	return 0;
}

/*
 * The kernel requires a GPL-compatible licence string for GPL-only helpers. It stands for GPL-2.0-only OR
 * BSD-2-Clause.
 */
char datapath_license[] SEC("license") = "Dual BSD/GPL";
