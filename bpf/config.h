/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Load-time configuration. The agent writes these into .rodata before the programs are loaded, so the
 * verifier removes what a configuration does not use: a mode costs nothing where it is off.
 */
#pragma once

#include "types.h"

/* Packets go from pod to pod by redirection; if false, by the host's stack (--routing=kernel). */
const volatile bool config_ebpf_routing = true;

/* Traffic to the world is masqueraded by the host's stack, which must then see both of its directions. */
const volatile bool config_masquerade = true;

/*
 * The host's stack translates connections between pods (--services=kube-proxy): packets that go straight are
 * only those of connections that conntrack does not know as translated.
 */
const volatile bool config_stack_services = false;
