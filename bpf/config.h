/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Load-time configuration. The agent writes these into .rodata before the programs are loaded, so the
 * verifier removes what a configuration does not use: a mode costs nothing where it is off.
 */
#pragma once

#include "types.h"

/* Packets go from pod to pod by redirection; if false, by the host's stack (--routing=kernel). */
const volatile bool config_ebpf_routing = true;

/* Traffic of pods to the world is masqueraded by the programs here (--masquerade). */
const volatile bool config_masquerade = true;

/*
 * The host's stack translates connections between pods (--services=kube-proxy): packets that go straight are
 * only those of connections that conntrack does not know as translated.
 */
const volatile bool config_kube_proxy = false;

/* Services are translated by the programs here (--services=ebpf). */
const volatile bool config_services = false;

/* Backends on other nodes answer clients of the world themselves, for Services with SERVICE_DSR (--nodeport-mode=dsr). */
const volatile bool config_dsr = false;

/* The cookie of the node's own network namespace: what a socket there connects to, the node itself connects to. */
const volatile __u64 config_host_netns = 0;

/* The ports that translation gives, first and last (--nat-ports). */
const volatile __u16 config_nat_first = 40000;
const volatile __u16 config_nat_last = 65535;

/* Elements of `nat_slots` and `pending_slots`: half of --nat-max and of --nat-pending-max. */
const volatile __u32 config_nat_slots = 131072;
const volatile __u32 config_pending_slots = 8192;

/* bpf_set_retval says why connect and sendmsg are refused (Linux 6.1). */
const volatile bool config_socket_errors = true;

/* The UDP port of tunnels (--tunnel-port), which nothing is sent to in a node's name but by its tunnels; 0 where there are none. */
const volatile __u16 config_tunnel_port = 0;

/* NetworkPolicies are put into force here (--policy=ebpf). */
const volatile bool config_policy = false;

/* What flows tell of: enum flow_mode (--flows). */
const volatile __u32 config_flows = FLOWS_OFF;

/* How many drops a second each CPU may tell of (--flows-rate). */
const volatile __u32 config_flows_rate = 1000;

/* Flows tell of one session in so many (--flows-sample). */
const volatile __u32 config_flows_sample = 1;
