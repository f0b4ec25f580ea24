// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Sockets that meet on one node. An object of its own: without --same-node=sockets nothing of it is loaded. It shares
 * the tables of policies and conntrack with the datapath.
 */
#include "types.h"
#include "config.h"
#include "maps.h"
#include "maps_same_node.h"
#include "prog/same_node.h"

/*
 * The kernel requires a GPL-compatible licence string for GPL-only helpers. It stands for GPL-2.0-only OR
 * BSD-2-Clause.
 */
char datapath_license[] SEC("license") = "Dual BSD/GPL";
