package datapath

// The objects are committed: building needs no clang. `make generate` makes them again, with the clang that
// the Makefile names, and CI checks that nothing changes. One little-endian object serves amd64 and arm64.

//go:generate go tool bpf2go -cc $BPF_CLANG -strip $BPF_STRIP -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -nostdinc -isystem ../../bpf/headers" -target bpfel -no-global-types -type address -type endpoint -type route -type route_key -type prefix_lengths -type decision -type route_kind -type drop_reason -type program -type drop_count -type frontend -type without_backend -type backend_set -type service_flag -type service -type backend_key -type backend -type maglev_key -type maglev_block -type client_kind -type client -type affinity -type source_key -type service_count -type tuple -type connection_flag -type connection -type timeout -type uplink -type fragment_key -type fragment_ports -type peer -type datagram_kind -type datagram_key -type datagram bpf ../../bpf/beeline.c
//go:generate go tool bpf2go -cc $BPF_CLANG -strip $BPF_STRIP -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -nostdinc -isystem ../../bpf/headers" -target bpfel -no-global-types destroy ../../bpf/destroy.c
