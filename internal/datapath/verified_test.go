package datapath_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// verifiedFile lists how many instructions the verifier of each kernel processes, by test and program; its first line
// names the kernels.
const verifiedFile = "testdata/verified.txt"

// verifiedTolerance is by how many percent a program may exceed the recorded number before it must be recorded again.
// The kernel rejects more than a million (BPF_COMPLEXITY_LIMIT_INSNS).
const verifiedTolerance = 5

// verified is the largest number of instructions that the verifier processed of each program in the configurations of
// one test.
type verified map[string]int

func (v verified) add(programs []table.ProgramInfo) {
	for _, p := range programs {
		v[p.Name] = max(v[p.Name], int(p.Instructions))
	}
}

// verifiedRow is the key of a line of the file.
type verifiedRow struct{ kernel, test, program string }

// check fails the test if a program exceeds what is recorded for this kernel and test, or is not recorded. For a
// kernel that the file does not name, the limit is twice the most of any kernel.
func (v verified) check(t *testing.T, test string) {
	t.Helper()
	kernels, rows, err := readVerified()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("lines of %s:\n%s", verifiedFile, v.lines(kernelVersion(t), test))
	for _, problem := range v.problems(kernelVersion(t), test, kernels, rows) {
		t.Error(problem)
	}
}

func (v verified) problems(kernel, test string, kernels []string, rows map[verifiedRow]int) (all []string) {
	known := slices.Contains(kernels, kernel)
	for _, program := range slices.Sorted(maps.Keys(v)) {
		bound := rows[verifiedRow{kernel, test, program}]
		if !known {
			for _, k := range kernels {
				bound = max(bound, 2*rows[verifiedRow{k, test, program}])
			}
		}
		if got := v[program]; got*100 > bound*(100+verifiedTolerance) {
			all = append(all, fmt.Sprintf("%s: the verifier of Linux %s processes %d instructions, and %d are recorded (%d %% more are tolerated)", program, kernel, got, bound, verifiedTolerance))
		}
	}
	if len(all) > 0 {
		all = append(all, fmt.Sprintf("if a feature needs them, put these lines into internal/datapath/%s in place of the old ones, and name the feature in the commit:\n%s",
			verifiedFile, v.lines(kernel, test)))
	}
	return all
}

// lines are the lines of the file for this kernel and test.
func (v verified) lines(kernel, test string) string {
	var b strings.Builder
	for _, program := range slices.Sorted(maps.Keys(v)) {
		fmt.Fprintf(&b, "%s %s %s %d\n", kernel, test, program, v[program])
	}
	return b.String()
}

func readVerified() (kernels []string, rows map[verifiedRow]int, err error) {
	text, err := os.ReadFile(verifiedFile)
	if err != nil {
		return nil, nil, err
	}
	return parseVerified(string(text))
}

func parseVerified(text string) (kernels []string, rows map[verifiedRow]int, err error) {
	first, rest, _ := strings.Cut(text, "\n")
	named, ok := strings.CutPrefix(first, "kernels:")
	if !ok {
		return nil, nil, fmt.Errorf("%s does not start with its kernels", verifiedFile)
	}
	rows = map[verifiedRow]int{}
	for line := range strings.Lines(rest) {
		var r verifiedRow
		var n int
		if _, err := fmt.Sscanf(line, "%s %s %s %d", &r.kernel, &r.test, &r.program, &n); err != nil {
			return nil, nil, fmt.Errorf("%s: %q: %w", verifiedFile, strings.TrimSpace(line), err)
		}
		rows[r] = n
	}
	return strings.Fields(named), rows, nil
}

// kernelVersion is the major and minor version of the running kernel.
func kernelVersion(t *testing.T) string {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitN(unix.ByteSliceToString(name.Release[:]), ".", 3)
	if len(parts) < 3 {
		t.Fatalf("the kernel calls itself %q", unix.ByteSliceToString(name.Release[:]))
	}
	return parts[0] + "." + parts[1]
}

// A program that grows or is not recorded is reported, with what to do. An unknown kernel may process twice as many.
func TestVerifiedIsBounded(t *testing.T) {
	kernels, rows, err := parseVerified("kernels: 6.1 6.18\n6.1 TestX from_pod 1000\n6.18 TestX from_pod 2000\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kernel, program string
		instructions    int
		problem         bool
	}{
		{"6.1", "from_pod", 1050, false}, {"6.1", "from_pod", 1051, true}, {"6.18", "from_pod", 2100, false}, {"6.18", "from_pod", 2101, true},
		{"6.1", "from_wire", 1, true}, {"7.0", "from_pod", 4200, false}, {"7.0", "from_pod", 4201, true},
	} {
		problems := verified{c.program: c.instructions}.problems(c.kernel, "TestX", kernels, rows)
		if len(problems) > 0 != c.problem {
			t.Errorf("%+v: %q", c, problems)
		}
		line := fmt.Sprintf("\n%s TestX %s %d\n", c.kernel, c.program, c.instructions)
		if c.problem && !strings.HasSuffix(problems[len(problems)-1], line) {
			t.Errorf("%+v: %q does not end with %q", c, problems, line)
		}
	}
}

// The file is sorted, and its first line names the kernels of its lines.
func TestVerifiedFile(t *testing.T) {
	kernels, rows, err := readVerified()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(verifiedFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	order := func(a, b string) int {
		x, y := strings.Fields(a), strings.Fields(b)
		return cmp.Or(cmp.Compare(slices.Index(kernels, x[0]), slices.Index(kernels, y[0])), slices.Compare(x[1:3], y[1:3]))
	}
	if !slices.IsSortedFunc(lines, order) || len(lines) != len(rows) {
		t.Errorf("the lines of %s are not sorted by kernel, test and program, or one is there twice", verifiedFile)
	}
	for r := range rows {
		if !slices.Contains(kernels, r.kernel) {
			t.Errorf("the first line does not name the kernel of %+v", r)
		}
	}
}

// The instructions of the program that destroys sockets are recorded, too.
func TestLoadDestroy(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	spec, err := bpf.LoadDestroy()
	if err != nil {
		t.Fatal(err)
	}
	storage := map[string]*ebpf.Map{bpf.MapSockStorage: testmaps.Open(t, config.Datapath{Services: true}).Maps.SockStorage}
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: storage})
	if errors.Is(err, ebpf.ErrNotSupported) {
		testenv.Missing(t, "not on this kernel: bpf_sock_destroy (Linux 6.5)")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	info, err := all.Programs["destroy_udp"].Info()
	if err != nil {
		t.Fatal(err)
	}
	processed, ok := info.VerifiedInstructions()
	if !ok {
		t.Fatal("the kernel does not report how many instructions the verifier processed")
	}
	verified{"destroy_udp": int(processed)}.check(t, t.Name())
}
