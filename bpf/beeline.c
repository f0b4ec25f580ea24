// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The datapath. README.md describes the path of each packet. */
#include "types.h"
#include "config.h"
#include "maps.h"
#include "prog/pod.h"
#include "prog/wire.h"
#include "prog/from_macvlan.h"
#include "prog/to_macvlan.h"
#include "prog/tunnel.h"
#include "prog/wireguard.h"
#include "prog/ipsec.h"
#include "prog/xdp.h"
#include "lib/lb/sock.h"
#include "prog/sock.h"
#include "prog/maintenance.h"

/*
 * The kernel requires a GPL-compatible licence string for GPL-only helpers. It stands for GPL-2.0-only OR
 * BSD-2-Clause.
 */
char datapath_license[] SEC("license") = "Dual BSD/GPL";
