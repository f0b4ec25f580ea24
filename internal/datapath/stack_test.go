package datapath_test

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// stackMax is the stack of a chain of calls (MAX_BPF_STACK), and stackUnit what Linux 6.1 rounds each frame up to; later kernels waste less.
const stackMax, stackUnit = 512, 32

// The stack of no chain of calls is larger than Linux 6.1 allows. Its verifier says so, too, but only in an emulated machine.
func TestStackFits(t *testing.T) {
	spec, err := bpf.Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range spec.Programs {
		if depth, chain := stackOf(program.Instructions); depth > stackMax {
			t.Errorf("%s has a chain of calls with %d bytes of stack, and %d are allowed:%s", name, depth, stackMax, chain)
		}
	}
}

// frames are the functions of a program: the stack that each uses, and the functions that it calls.
type frames struct {
	used  map[string]int
	calls map[string][]string
}

// stackOf gives the deepest chain of calls from the first function.
func stackOf(program asm.Instructions) (depth int, chain string) {
	f := frames{map[string]int{}, map[string][]string{}}
	var first, current string
	var before asm.Instruction
	for _, ins := range program {
		if name := ins.Symbol(); name != "" && btf.FuncMetadata(&ins) != nil {
			current = name
			if first == "" {
				first = name
			}
		}
		if ins.IsFunctionCall() {
			f.calls[current] = append(f.calls[current], ins.Reference())
		}
		f.used[current] = max(f.used[current], stackUsed(before, ins))
		before = ins
	}
	return f.deepest(first)
}

// stackUsed is how far below the frame pointer an instruction accesses the stack, or points to.
func stackUsed(before, ins asm.Instruction) int {
	switch class := ins.OpCode.Class(); {
	case class.IsLoad() && ins.Src == asm.R10, class.IsStore() && ins.Dst == asm.R10:
		return -int(ins.Offset)
	case ins.OpCode == asm.Add.Op(asm.ImmSource) && before.OpCode == asm.Mov.Op(asm.RegSource) && before.Src == asm.R10 && before.Dst == ins.Dst:
		return -int(ins.Constant)
	}
	return 0
}

// deepest gives the deepest chain of calls from a function. There is no recursion.
func (f frames) deepest(function string) (depth int, chain string) {
	for _, called := range f.calls[function] {
		if d, c := f.deepest(called); d > depth {
			depth, chain = d, c
		}
	}
	own := (max(f.used[function], 1) + stackUnit - 1) / stackUnit * stackUnit
	return own + depth, fmt.Sprintf(" %s %d", function, own) + chain
}

// A chain that does not fit is found, with what it consists of.
func TestStackOf(t *testing.T) {
	function := func(name string, body ...asm.Instruction) asm.Instructions {
		body[0] = btf.WithFuncMetadata(body[0].WithSymbol(name), &btf.Func{Name: name, Type: &btf.FuncProto{Return: &btf.Int{Size: 4}}})
		return append(body, asm.Return())
	}
	call := func(name string) asm.Instruction {
		return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: -1}.WithReference(name)
	}
	program := append(function("first", asm.StoreMem(asm.R10, -40, asm.R1, asm.DWord), call("small"), call("large")),
		append(function("small", asm.Mov.Imm(asm.R0, 0)),
			function("large", asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -65))...)...)
	if depth, chain := stackOf(program); depth != 64+96 || chain != " first 64 large 96" {
		t.Errorf("the deepest chain has %d bytes:%s", depth, chain)
	}
}
