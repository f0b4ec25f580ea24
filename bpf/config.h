/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Load-time configuration. The agent sets these constants in .rodata before it loads the programs, and the
 * verifier prunes code of features that are off.
 */
#pragma once

#include "types.h"

/* Pod traffic is redirected; if false, the kernel stack forwards it (--routing=kernel). */
const volatile bool config_ebpf_routing = true;

/*
 * Pods may have netkit devices (Linux 6.7): from_pod runs there while the pod sends, not while the host end receives.
 */
const volatile bool config_netkit = false;

/* to_pod is at the host ends of pods' devices. */
const volatile bool config_to_pod = true;

/* to_wire is at uplinks. */
const volatile bool config_to_wire = true;

/* Pods may have macvlan devices on uplinks. */
const volatile bool config_macvlan = false;

/* A random number that programs of this node mark packets with; see handled_set. */
const volatile __u64 config_handled = 0;

/* A random number, by which frames to the node hide their source MAC; see macvlan_hide_source. */
const volatile __u64 config_macvlan_source = 0;

/* Masquerades pods' traffic to external addresses (--masquerade). */
const volatile bool config_masquerade = true;

/*
 * kube-proxy translates Services in the kernel stack (--services=kube-proxy): packets are redirected only if
 * conntrack knows their connection as untranslated.
 */
const volatile bool config_kube_proxy = false;

/* Translates Services here (--services=ebpf). */
const volatile bool config_services = false;

/* Backends on other nodes reply to external clients directly, for Services with SERVICE_DSR (--nodeport-mode=dsr). */
const volatile bool config_dsr = false;

/* Cookie of the host's network namespace. */
const volatile __u64 config_host_netns = 0;

/* The SNAT port range (--nat-ports). */
const volatile __u16 config_nat_first = 40000;
const volatile __u16 config_nat_last = 65535;

/* A secret odd number by which external clients are hashed to owners of NAT entries; see nat_owner_external. */
const volatile __u32 config_nat_hash = 0x9e3779b1;

/* Elements of `nat_slots` and `pending_slots`: half of the sizes of `nat` and `nat_pending`. */
const volatile __u32 config_nat_slots = 131072;
const volatile __u32 config_pending_slots = 8192;

/* bpf_set_retval is available for connect and sendmsg (Linux 6.1). */
const volatile bool config_socket_errors = true;

/* Drops plaintext of what has to be encrypted (--encryption, --encryption-strict). */
const volatile bool config_strict_encryption = false;

/* UDP port of tunnels (--tunnel-port), 0 without tunnels. Only tunnels may send to it with a node's address. */
const volatile __u16 config_tunnel_port = 0;

/* Enforces NetworkPolicies (--policy=ebpf). */
const volatile bool config_policy = false;

/* enum flow_mode (--flows). */
const volatile __u32 config_flows = FLOWS_OFF;

/* Drop events a second for each CPU (--flows-rate). */
const volatile __u32 config_flows_rate = 1000;

/* Reports one connection in N (--flows-sample). */
const volatile __u32 config_flows_sample = 1;
