package fwd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// stackLimit is how many bytes of stack a chain of calls may take in all (MAX_BPF_STACK). The verifier counts each function in pieces of
// stackPiece bytes.
const (
	stackLimit = 512
	stackPiece = 32
)

// stackFrame is a function of a BPF program: how many bytes of stack it uses, and what it calls.
type stackFrame struct {
	name  string
	size  int
	calls []string
}

// stackFrames gives the functions of a program by their names. Bytes are what the code addresses, in any configuration: on kernels that remove
// code of other configurations first it takes less.
func stackFrames(instructions asm.Instructions) map[string]*stackFrame {
	frames := map[string]*stackFrame{}
	var at *stackFrame
	ofStack := map[asm.Register]bool{} // has been made from the frame pointer by the instruction before
	for _, in := range instructions {
		if name := in.Symbol(); name != "" {
			at = &stackFrame{name: name}
			frames[name] = at
		}
		if in.IsFunctionCall() && !slices.Contains(at.calls, in.Reference()) {
			at.calls = append(at.calls, in.Reference())
		}
		class, offset := in.OpCode.Class(), 0
		switch {
		case class.IsLoad() && in.Src == asm.RFP, class.IsStore() && in.Dst == asm.RFP:
			offset = int(in.Offset)
		case in.OpCode == asm.Add.Imm(in.Dst, 0).OpCode && ofStack[in.Dst]:
			offset = int(in.Constant)
		}
		at.size = max(at.size, -offset)
		clear(ofStack)
		if in.OpCode == asm.Mov.Reg(in.Dst, in.Src).OpCode && in.Src == asm.RFP {
			ofStack[in.Dst] = true
		}
	}
	return frames
}

// deepest gives the chain of calls from a function on that takes most stack, and its bytes as the verifier counts them.
func deepest(frames map[string]*stackFrame, name string) (bytes int, chain []string) {
	f := frames[name]
	for _, call := range f.calls {
		if b, c := deepest(frames, call); b > bytes {
			bytes, chain = b, c
		}
	}
	own := max(1, (f.size+stackPiece-1)/stackPiece) * stackPiece
	return own + bytes, append([]string{fmt.Sprintf("%s(%d)", name, f.size)}, chain...)
}

// No chain of calls takes more stack than Linux 6.1 gives. Later kernels that give some programs more would not show it, and the kernels that run here are
// such; the emulated machines show it, but after a quarter of an hour.
func TestStack(t *testing.T) {
	for _, load := range []func() (*ebpf.CollectionSpec, error){bpf.Load, bpf.LoadDestroy} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for name, program := range spec.Programs {
			frames := stackFrames(program.Instructions)
			if bytes, chain := deepest(frames, program.Instructions[0].Symbol()); bytes > stackLimit {
				t.Errorf("%s takes %d bytes of stack, %d are allowed: %s", name, bytes, stackLimit, strings.Join(chain, " > "))
			} else {
				t.Logf("%s: %d bytes, %s", name, bytes, strings.Join(chain, " > "))
			}
		}
	}
}
