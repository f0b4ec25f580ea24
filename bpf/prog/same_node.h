/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sockets that meet on one node (--same-node=sockets): what one pod sends goes into the other pod's socket. Only
 * for TCP between two pods that both opted in. A socket starts with socket to socket and goes back to packets for
 * good when anything is in doubt. The order of data is kept: the receiver reads what came from the socket before
 * what came in packets.
 */
#pragma once

#include "lib/same/kernel.h"
#include "lib/same/session.h"

/* The number of these programs in `sn_active`. */
const volatile __u64 config_same_node_number = 0;

/* Larger messages are faster as packets (docs/same-node.md). */
const volatile __u32 config_same_node_message = 32768;

/* Bytes that may be unread. TCP has a window; sockets that meet have only this. */
const volatile __u32 config_same_node_unread = 65536;

/* Adds a socket whose handshake is complete. */
static __always_inline void same_node_join(struct bpf_sock_ops *ctx, struct bpf_sock *sk)
{
	const struct tcp_sock___mptcp *mptcp;
	const struct same_node_pod *own;
	struct same_node_key key = {}, peer;
	struct same_node_sock *s;

	if (!pair_key(ctx, &key))
		return;
	key.netns = bpf_get_netns_cookie(ctx);
	own = pair_find(&key, &peer);
	if (likely(!own))
		return;
	mptcp = (void *)bpf_skc_to_tcp_sock(sk);
	if (!mptcp || (kernel_field_exists(mptcp->is_mptcp) && mptcp->is_mptcp))
		return;
	if (!pair_take_share(key.netns, own->share)) {
		same_node_count(SAME_NODE_NO_SHARE, 1);
		return;
	}
	s = bpf_sk_storage_get(&sn_storage, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		pair_return_share(key.netns);
		return;
	}
	s->peer = peer;
	s->netns = key.netns;
	s->joined = bpf_ktime_get_ns();
	s->reversed = pair_session(&key, &s->session);
	if (bpf_sock_hash_update(ctx, &sn_sockets, &key, BPF_NOEXIST)) {
		bpf_sk_storage_delete(&sn_storage, sk);
		pair_return_share(key.netns);
		return;
	}
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	same_node_count(SAME_NODE_JOINED, 1);
}

/* Returns the share of a closed socket. */
static __always_inline void same_node_close(struct bpf_sock *sk)
{
	struct same_node_sock *s = bpf_sk_storage_get(&sn_storage, sk, 0, 0);

	if (!s)
		return;
	pair_return_share(s->netns);
	bpf_sk_storage_delete(&sn_storage, sk);
}

SEC("sockops")
int same_node_open(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	if (!sk)
		return 1;
	switch (ctx->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		same_node_join(ctx, sk);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[1] == BPF_TCP_CLOSE)
			same_node_close(sk);
		break;
	}
	return 1;
}

/* Whether the socket has sent nothing yet, also not with its SYN, and nothing between it and TCP changes the data. */
static __always_inline bool same_node_is_suitable(struct bpf_sock *sk, const struct same_node_sock *s)
{
	const struct tcp_sock *t = (void *)bpf_skc_to_tcp_sock(sk);

	if (!t || t->inet_conn.icsk_ulp_ops)
		return false;
	return s->state != SAME_NODE_NEW || (!t->bytes_sent && t->write_seq == t->snd_nxt);
}

/* Why the message has to go as packets; SAME_NODE_LEFT_MAX if it need not. */
static __always_inline enum same_node_count same_node_check(struct sk_msg_md *msg, struct bpf_sock *sk,
							    struct same_node_sock *s)
{
	__u32 zero = 0;
	const __u64 *active = bpf_map_lookup_elem(&sn_active, &zero);

	if (!active || *active != config_same_node_number)
		return SAME_NODE_LEFT_AGENT;
	if (!pair_is_current(s))
		return SAME_NODE_LEFT_OPT_OUT;
	if (!same_node_is_suitable(sk, s))
		return SAME_NODE_LEFT_UNSUITABLE;
	if (msg->size > config_same_node_message || s->unread >= config_same_node_unread)
		return SAME_NODE_LEFT_BULK;
	if (!session_check(s, msg->size))
		return SAME_NODE_LEFT_POLICY;
	return SAME_NODE_LEFT_MAX;
}

/* The rest of the connection goes as packets. The program need not see it. */
static __always_inline int same_node_leave(struct sk_msg_md *msg, struct same_node_sock *s, enum same_node_count why)
{
	if (s->state != SAME_NODE_PACKETS) {
		s->state = SAME_NODE_PACKETS;
		s->reason = why;
		s->left = bpf_ktime_get_ns();
		if (why == SAME_NODE_LEFT_POLICY)
			bpf_map_update_elem(&sn_revoked, &s->session, &s->left, BPF_ANY);
		same_node_count(why, 1);
	}
	bpf_msg_apply_bytes(msg, ~0U);
	return SK_PASS;
}

SEC("sk_msg")
int same_node_send(struct sk_msg_md *msg)
{
	struct bpf_sock *sk = msg->sk;
	struct same_node_sock *s = sk ? bpf_sk_storage_get(&sn_storage, sk, 0, 0) : 0;
	const struct sk_msg *m = (void *)msg;
	const struct sock *other = 0;
	__u32 size = msg->size;
	enum same_node_count why;

	if (!s)
		return SK_PASS;
	if (s->state == SAME_NODE_PACKETS)
		return same_node_leave(msg, s, s->reason);
	why = same_node_check(msg, sk, s);
	if (why == SAME_NODE_LEFT_MAX && bpf_msg_redirect_hash(msg, &sn_sockets, &s->peer, BPF_F_INGRESS) != SK_PASS)
		why = SAME_NODE_LEFT_PEER;
	if (why != SAME_NODE_LEFT_MAX)
		return same_node_leave(msg, s, why);
	s->state = SAME_NODE_SOCKETS;
	bpf_probe_read_kernel(&other, sizeof(other), &m->sk_redir);
	s->unread = (other && kernel_queue_is_empty(other) ? 0 : s->unread) + size;
	same_node_count(SAME_NODE_MESSAGES, 1);
	same_node_count(SAME_NODE_BYTES, size);
	return SK_PASS;
}

/* Runs for each socket of `sn_storage`. Writes a same_node_record. */
SEC("iter/bpf_sk_storage_map")
int list_same_node(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	const struct same_node_sock *s = ctx->value;
	struct same_node_record r = {};
	const struct sock *sk = ctx->sk;

	if (!sk || !s)
		return 0;
	r.peer = s->peer;
	r.netns = s->netns;
	r.left = s->left;
	r.state = s->state;
	r.mapped = kernel_is_mapped(sk);
	r.unread = !kernel_queue_is_empty(sk);
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
