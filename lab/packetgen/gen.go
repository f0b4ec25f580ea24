package packetgen

// The object is committed: building needs no clang. `make generate` makes it again, as that of the datapath.

//go:generate go tool -modfile=../../build/tools/go.mod bpf2go -cc $BPF_CLANG -strip $BPF_STRIP -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -nostdinc -isystem ../../bpf/headers" -target bpfel -no-global-types packetgen bpf/packetgen.c
