package testbed

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/cgroup"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// up makes a lab that is taken down with the test.
func up(t *testing.T, o Options) *Lab {
	t.Helper()
	testenv.Root(t)
	downAfter(t, o.Name)
	lab, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

func downAfter(t *testing.T, name string) {
	t.Cleanup(func() {
		if err := Down(context.Background(), name); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
}

// traces lists everything on this machine that carries the marks of labs whose name begins with "t-<test>":
// other tests may run labs of their own at the same time.
func traces(t *testing.T, prefix string) []string {
	t.Helper()
	var found []string
	add := func(kind string, paths []string) {
		for _, p := range paths {
			found = append(found, kind+" "+p)
		}
	}
	glob := func(pattern string) []string {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	add("namespace", glob("/run/netns/bl-"+prefix+"*"))
	add("file", glob("/run/beeline-lab/"+prefix+"*"))
	root, err := cgroupRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range glob(filepath.Join(root, "beeline-lab", prefix+"*")) {
		add("cgroup", []string{dir})
		pids, err := cgroup.ProcessesBelow(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			comm, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
			add("process", []string{strings.TrimSpace(string(comm))})
		}
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.MountPoint, "/run/netns/bl-"+prefix) || strings.HasPrefix(m.MountPoint, "/run/beeline-lab/"+prefix) {
			add("mount", []string{m.MountPoint})
		}
	}
	return found
}

func wantNoTraces(t *testing.T, prefix string) {
	t.Helper()
	if found := traces(t, prefix); len(found) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(found, "\n"))
	}
}

// sleeper starts a process in a namespace; Down has to end it.
func sleeper(t *testing.T, p Netns) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := p.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

func TestUpAndDownLeaveNothing(t *testing.T) {
	lab := up(t, Options{Name: "t-plain"})
	pod, err := lab.NewPodNetns(t.Context(), lab.Node(0), "web")
	if err != nil {
		t.Fatal(err)
	}
	onNode, inPod := sleeper(t, lab.Node(1).Netns), sleeper(t, pod.Netns)

	// What Down must find has to be there first, else the comparison below proves nothing.
	before := strings.Join(traces(t, "t-plain"), "\n")
	for _, want := range []string{
		"namespace /run/netns/bl-t-plain-n1.web", "mount /run/netns/bl-t-plain-n2",
		"mount /run/beeline-lab/t-plain/n1/bpf", "process sleep", "cgroup ",
	} {
		if !strings.Contains(before, want) {
			t.Errorf("lab has no %q; it has:\n%s", want, before)
		}
	}
	if err := lab.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoTraces(t, "t-plain")
	for _, cmd := range []*exec.Cmd{onNode, inPod} {
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(interface{ Signal() unix.Signal }) == nil {
			t.Errorf("process ended with %v, want a signal", err)
		}
	}
	if err := lab.Down(t.Context()); err != nil {
		t.Errorf("second Down: %v", err)
	}
	if _, err := Open("t-plain"); !errors.Is(err, ErrNotUp) {
		t.Errorf("Open after Down: %v, want ErrNotUp", err)
	}
	if _, err := lab.NewPodNetns(t.Context(), lab.Node(0), "late"); !errors.Is(err, ErrNotUp) {
		t.Errorf("a pod after Down: %v, want ErrNotUp", err)
	}
	wantNoTraces(t, "t-plain")
}

func TestWires(t *testing.T) {
	for name, o := range map[string]Options{
		"one":   {Name: "t-one", Nodes: 1},
		"two":   {Name: "t-two", Nodes: 2, IPv6: true},
		"three": {Name: "t-three", Nodes: 3, IPv6: true},
		"jumbo": {Name: "t-jumbo", Nodes: 3, MTU: 9000},
	} {
		t.Run(name, func(t *testing.T) {
			lab := up(t, o)
			for _, n := range lab.Nodes() {
				wantUplink(t, lab, n)
			}
			first := lab.Node(0)
			for _, other := range lab.Nodes()[1:] {
				for _, a := range other.Addresses {
					// The largest packet that fits, not to be fragmented; headers: 20+8 or 40+8 bytes.
					size := lab.MTU - 28
					if a.Addr().Is6() {
						size -= 20
					}
					if _, err := first.Output(t.Context(), "ping", "-c1", "-W30", "-Mdo", "-s", strconv.Itoa(size), a.Addr().String()); err != nil {
						t.Errorf("n1 to %s: %v", other.Name, err)
					}
				}
			}
		})
	}
}

func wantUplink(t *testing.T, lab *Lab, n *Node) {
	t.Helper()
	err := n.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(Uplink)
		if err != nil {
			return err
		}
		if link.Attrs().MTU != lab.MTU {
			t.Errorf("%s: MTU %d, want %d", n.Name, link.Attrs().MTU, lab.MTU)
		}
		addrs, err := h.AddrList(link, unix.AF_INET6)
		if err != nil {
			return err
		}
		if !lab.IPv6 && len(addrs) > 0 {
			t.Errorf("%s: IPv6 addresses %v in a lab without IPv6", n.Name, addrs)
		}
		for _, a := range addrs {
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				t.Errorf("%s: %s is still tentative", n.Name, a)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The machine's own congestion controls stay as they are.
func TestCongestionControlIsTheSameEverywhere(t *testing.T) {
	testenv.Root(t)
	const allowed = "net/ipv4/tcp_allowed_congestion_control"
	before, err := (Netns{}).ReadSysctl(allowed)
	if err != nil {
		t.Fatal(err)
	}
	lab := up(t, Options{Name: "t-cong"})
	pod, err := lab.NewPodNetns(t.Context(), lab.Node(0), "web")
	if err != nil {
		t.Fatal(err)
	}
	for _, netns := range []Netns{lab.Node(0).Netns, lab.Node(1).Netns, pod.Netns} {
		got, err := netns.ReadSysctl("net/ipv4/tcp_congestion_control")
		if err != nil || got != lab.CongestionControl || got == "" {
			t.Errorf("%s: congestion control %q, %v; the lab says %q", netns.Path, got, err, lab.CongestionControl)
		}
	}
	after, err := (Netns{}).ReadSysctl(allowed)
	if err != nil || after != before {
		t.Errorf("a lab changes %s of the machine: %q, %v; before it was %q", allowed, after, err, before)
	}
}

func TestNetnsOfAProcess(t *testing.T) {
	lab := up(t, Options{Name: "t-place"})
	pod, err := lab.NewPodNetns(t.Context(), lab.Node(1), "web")
	if err != nil {
		t.Fatal(err)
	}
	script := `readlink /proc/self/ns/net; grep Cpus_allowed_list /proc/self/status; grep ^0:: /proc/self/cgroup`
	out, err := pod.On(0).Output(t.Context(), "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(pod.Path, &st); err != nil {
		t.Fatal(err)
	}
	want := "net:[" + strconv.Itoa(int(st.Ino)) + "]\nCpus_allowed_list:\t0\n"
	if got := string(out); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "/beeline-lab/t-place/n2/pod-web\n") {
		t.Errorf("process sees\n%s\nwant it to begin with\n%s", got, want)
	}
	err = pod.Do(func() error { return errors.New("from inside") })
	if err == nil || err.Error() != "from inside" {
		t.Errorf("Do gives %v", err)
	}
	if _, err := pod.Output(t.Context(), "sh", "-c", "echo why >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("Output gives %v, want what the command said", err)
	}
}

func TestHostsFollowPods(t *testing.T) {
	lab := up(t, Options{Name: "t-hosts"})
	lookup := func(name string) string {
		var out strings.Builder
		cmd := lab.Command("getent", "hosts", name)
		cmd.Stdout = &out
		_ = lab.Node(0).Run(cmd) // an unknown name is an error and no output
		return out.String()
	}
	if got := lookup("n2"); !strings.HasPrefix(got, "192.168.77.2") {
		t.Errorf("n2 is %q", got)
	}
	pod, err := lab.NewPodNetns(t.Context(), lab.Node(0), "web")
	if err != nil {
		t.Fatal(err)
	}
	pod.Addresses = []netip.Addr{netip.MustParseAddr("10.77.1.9")}
	if err := lab.SavePod(pod); err != nil {
		t.Fatal(err)
	}
	if got := lookup("web"); !strings.HasPrefix(got, "10.77.1.9") {
		t.Errorf("web is %q", got)
	}
	if err := lab.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got := lookup("web"); got != "" {
		t.Errorf("web is still %q when it is gone", got)
	}
	machine, err := os.ReadFile("/etc/hosts")
	if err != nil || strings.Contains(string(machine), "t-hosts") {
		t.Errorf("the machine's own hosts file: %v\n%s", err, machine)
	}
}

func TestTwoLabsSideBySide(t *testing.T) {
	a := up(t, Options{Name: "t-side"})
	b := up(t, Options{Name: "t-side-n1"}) // a name that a careless mark would take for a node of the other
	if _, err := b.NewPodNetns(t.Context(), b.Node(0), "web"); err != nil {
		t.Fatal(err)
	}
	sleeper(t, b.Node(0).Netns)
	before := traces(t, "t-side-n1-")
	if err := a.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, traces(t, "t-side-n1-")); diff != "" {
		t.Errorf("taking down one lab changed the other (-before +after):\n%s", diff)
	}
	if pids, err := b.Node(0).Processes(); err != nil || len(pids) != 1 {
		t.Errorf("processes of the other lab: %v, %v; want its one sleeper", pids, err)
	}
	if _, err := b.Node(0).Output(t.Context(), "ping", "-c1", "-W30", b.Node(1).Addresses[0].Addr().String()); err != nil {
		t.Error(err)
	}
	listed, err := List()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(listed, func(l Listed) bool { return l.Name == "t-side" }) ||
		!slices.ContainsFunc(listed, func(l Listed) bool { return l.Name == "t-side-n1" && l.Lab != nil }) {
		t.Errorf("List gives %v", listed)
	}
}

// Labs come and go at the same time: none harms another.
func TestManyLabsComeAndGo(t *testing.T) {
	testenv.Root(t)
	want := congestionControl()
	var group sync.WaitGroup
	for i := range 4 {
		name := "t-many-" + strconv.Itoa(i)
		downAfter(t, name)
		group.Go(func() {
			for range 5 {
				lab, err := Up(t.Context(), Options{Name: name})
				if err != nil {
					t.Error(err)
					return
				}
				if lab.CongestionControl != want {
					t.Errorf("%s has congestion control %s, want %s", name, lab.CongestionControl, want)
				}
				if err := lab.Down(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	wantNoTraces(t, "t-many-")
}

func TestUpTwice(t *testing.T) {
	lab := up(t, Options{Name: "t-twice"})
	if _, err := Up(t.Context(), lab.Options); err == nil || !strings.Contains(err.Error(), "up already") {
		t.Errorf("second Up: %v", err)
	}
	if _, err := lab.Node(0).Output(t.Context(), "ping", "-c1", "-W30", lab.Node(1).Addresses[0].Addr().String()); err != nil {
		t.Errorf("the second Up harmed the first: %v", err)
	}
}

func TestPods(t *testing.T) {
	lab := up(t, Options{Name: "t-pods"})
	pod, err := lab.NewPodNetns(t.Context(), lab.Node(0), "web")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web", "n1", "Web", "a.b", "../x", ""} {
		if _, err := lab.NewPodNetns(t.Context(), lab.Node(1), name); err == nil {
			t.Errorf("pod %q was made", name)
		}
	}
	pod.MTU = 1234
	if err := lab.SavePod(pod); err != nil {
		t.Fatal(err)
	}
	other, err := Open("t-pods")
	if err != nil {
		t.Fatal(err)
	}
	got, err := other.Pods()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*Pod{pod}, got, cmp.Comparer(func(a, b Pod) bool { return a.Name == b.Name && a.Netns == b.Netns && a.MTU == b.MTU })); diff != "" {
		t.Error(diff)
	}
	sleeper(t, pod.Netns)
	for range 2 {
		if err := lab.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	for _, trace := range traces(t, "t-pods") {
		if strings.Contains(trace, "web") || strings.Contains(trace, "process") {
			t.Errorf("DeletePod left %s", trace)
		}
	}
}

func TestPodThatCannotBeMadeLeavesNothing(t *testing.T) {
	const name = "t-nopod"
	lab := up(t, Options{Name: name, Nodes: 1})
	node := lab.Node(0)
	in := podNetns(name, node.Name, "a")
	if err := os.WriteFile(in, nil, 0o600); err != nil { // no namespace can have that name now
		t.Fatal(err)
	}
	if pod, err := lab.NewPodNetns(t.Context(), node, "a"); err == nil || pod != nil {
		t.Fatalf("made %v, %v", pod, err)
	}
	if pods, err := lab.Pods(); err != nil || len(pods) != 0 {
		t.Errorf("pods left: %v, %v", pods, err)
	}
	if _, err := lab.NewPodNetns(t.Context(), node, "a"); err != nil {
		t.Errorf("not possible afterwards: %v", err)
	}
}
