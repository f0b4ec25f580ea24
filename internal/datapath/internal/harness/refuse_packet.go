package harness

func Answered(name string, in Run, out []byte) PacketCase {
	return PacketCase{Name: name, Run: in, Verdict: VerdictRedirect, Out: out}
}
