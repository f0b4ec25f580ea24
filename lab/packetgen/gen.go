package packetgen

import (
	"bytes"
	_ "embed"

	"github.com/cilium/ebpf"
)

// The object is committed: building needs no clang. `make generate` makes it again, as that of the datapath. Nothing uses
// the Go code that bpf2go writes beside it.

//go:generate go tool -modfile=../../build/tools/go.mod bpf2go -cc $BPF_CLANG -strip $BPF_STRIP -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -nostdinc -isystem ../../bpf/headers" -target bpfel -no-global-types packetgen bpf/packetgen.c
//go:generate rm packetgen_bpfel.go

//go:embed packetgen_bpfel.o
var compiled []byte

// loadPacketgen reads the programs.
func loadPacketgen() (*ebpf.CollectionSpec, error) {
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(compiled))
}
