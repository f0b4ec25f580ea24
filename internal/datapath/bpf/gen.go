// Package bpf holds the C programs and maps as bpf2go compiles them, and what both sides of the maps compute:
// addresses, ports, prefixes and hashes. C is the single source of the layouts. Packages outside internal/datapath do
// not import it.
package bpf

// The objects are committed, so building needs no clang. `make generate` rebuilds them with the clang that the
// Makefile names, and CI checks that nothing changes. One little-endian object serves amd64 and arm64.

//go:generate go tool -modfile=../../../build/tools/go.mod bpf2go -cc $BPF_CLANG -strip $BPF_STRIP -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -nostdinc -isystem ../../../bpf/headers -I ../../../bpf" -target bpfel -no-global-types -type address -type endpoint -type macvlan_key -type macvlan_pod -type limit -type route -type route_key -type prefix_lengths -type flow_cache_entry -type generation_index -type route_kind -type drop_reason -type program -type drop_count -type frontend -type no_backend -type backend_set -type service_flag -type service -type backend_key -type backend -type maglev_key -type maglev_block -type client_kind -type client -type affinity -type source_key -type service_count -type tuple -type nat_flag -type nat_entry -type nat_slot -type nat_owner -type timeout -type uplink -type fragment_key -type fragment -type sender -type icmp_ratelimit_key -type icmp_ratelimit_entry -type icmp_error_kind -type sock_entry -type sock_tcp_entry -type sock_udp_entries -type enforce_flag -type policy_pod -type identity -type identity_cidr_key -type policy_key -type policy_port_key -type ct_entry -type ct_new_entry -type ct_flag -type ct_ring -type ct_slot -type ct_share -type flush_pod_args -type flow_kind -type flow_mode -type flow_event -type flow_loss -type flow_drop Bpf ../../../bpf/beeline.c
//go:generate go tool -modfile=../../../build/tools/go.mod bpf2go -cc $BPF_CLANG -strip $BPF_STRIP -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -nostdinc -isystem ../../../bpf/headers -I ../../../bpf" -target bpfel -no-global-types Destroy ../../../bpf/destroy.c
//go:generate go tool -modfile=../../../build/tools/go.mod bpf2go -cc $BPF_CLANG -strip $BPF_STRIP -cflags "-O2 -g -Wall -Wextra -Werror -Wno-unused-function -mcpu=v3 -nostdinc -isystem ../../../bpf/headers -I ../../../bpf" -target bpfel -no-global-types -type address -type tuple -type same_node_pod -type same_node_key -type same_node_sock -type same_node_record -type same_node_state -type same_node_count SameNode ../../../bpf/same_node.c
//go:generate go tool -modfile=../../../build/tools/go.mod bpf2go -cc $BPF_CLANG -strip $BPF_STRIP -cflags "-O2 -g -Wall -Wextra -Werror -Wno-unused-function -mcpu=v3 -nostdinc -isystem ../../../bpf/headers -I ../../../bpf" -target bpfel -no-global-types SameNodeDestroy ../../../bpf/same_node_destroy.c

// bpf2go prefixes all names with Bpf; the package's name already says that.
//go:generate sed -i -E "s/LoadBpf/Load/g; s/_BpfBytes/_Bytes/g; s/\\bBpf([A-Z])/\\1/g" bpf_bpfel.go
//go:generate sed -i "s/SameNodeSameNode/SameNode/g" samenode_bpfel.go
