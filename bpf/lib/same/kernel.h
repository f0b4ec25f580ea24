/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Kernel types of --same-node=sockets; offsets are relocated at load. */
#pragma once

#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct sk_psock {
	struct list_head ingress_msg;
};

struct sock {
	void *sk_user_data;
};

/* A message on its way: what the context of an sk_msg program is in the kernel. */
struct sk_msg {
	struct sock *sk_redir;
};

struct inet_connection_sock {
	const void *icsk_ulp_ops;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_nxt, write_seq;
	__u64 bytes_sent;
};

/* With MPTCP. */
struct tcp_sock___mptcp {
	bool is_mptcp;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct sock *sk;
	void *value;
};

#pragma clang attribute pop

#define kernel_field_exists(field) __builtin_preserve_field_info(field, 2 /* BPF_FIELD_EXISTS */)

/* Flags in the lowest bits of sk_user_data (include/net/sock.h). */
#define SK_USER_DATA_FLAGS 7UL

/*
 * What the kernel adds to a socket in a map of sockets; NULL if it is in none. The program holds rcu_read_lock: the
 * memory of TCP sockets is not reused for anything else meanwhile.
 */
static __always_inline const struct sk_psock *kernel_psock(const struct sock *sk)
{
	unsigned long psock = 0;

	bpf_probe_read_kernel(&psock, sizeof(psock), &sk->sk_user_data);
	return (const void *)(psock & ~SK_USER_DATA_FLAGS);
}

static __always_inline bool kernel_is_mapped(const struct sock *sk)
{
	return kernel_psock(sk);
}

/* Whether the queue that other sockets of the node fill is empty. */
static __always_inline bool kernel_queue_is_empty(const struct sock *sk)
{
	const struct sk_psock *psock = kernel_psock(sk);
	const void *next = 0;

	if (!psock)
		return true;
	bpf_probe_read_kernel(&next, sizeof(next), &psock->ingress_msg.next);
	return next == &psock->ingress_msg;
}
