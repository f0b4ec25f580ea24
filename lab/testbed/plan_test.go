package testbed

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestOptions(t *testing.T) {
	good := Options{}.Defaults()
	if err := good.Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for want, change := range map[string]func(*Options){
		`--name "a.b"`: func(o *Options) { o.Name = "a.b" },
		`--name "a/b"`: func(o *Options) { o.Name = "a/b" },
		`--name ".."`:  func(o *Options) { o.Name = ".." },
		`--name "-a"`:  func(o *Options) { o.Name = "-a" },
		`--name "Web"`: func(o *Options) { o.Name = "Web" },
		`--name "aaaa`: func(o *Options) { o.Name = strings.Repeat("a", 31) },
		"--nodes -1":   func(o *Options) { o.Nodes = -1 },
		"--nodes 21":   func(o *Options) { o.Nodes = 21 },
		"--mtu 1280":   func(o *Options) { o.MTU = 1280 },
		"--mtu 65536":  func(o *Options) { o.MTU = 65536 },
		"--subnets 3":  func(o *Options) { o.Subnets = 3 },
		"--subnets -1": func(o *Options) { o.Subnets = -1 },
		"--nodes 21: ": func(o *Options) { o.Nodes, o.MTU = 21, 1 },
	} {
		o := good
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate gives %v, want %q in it", err, want)
		}
	}
}

func TestPlannedAddressesDoNotClash(t *testing.T) {
	nodes := planNodes(Options{Name: "a", Nodes: MaxNodes, IPv6: true}, "/cgroup")
	var cidrs []netip.Prefix
	seen := map[netip.Addr]bool{}
	for _, n := range nodes {
		for _, a := range n.Addresses {
			if seen[a.Addr()] || PodNetworkIPv4.Overlaps(a.Masked()) || PodNetworkIPv6.Overlaps(a.Masked()) {
				t.Errorf("%s: address %s is taken or a pod's", n.Name, a)
			}
			seen[a.Addr()] = true
		}
		for i, cidr := range n.PodCIDRs {
			if network := []netip.Prefix{PodNetworkIPv4, PodNetworkIPv6}[i]; !network.Contains(cidr.Addr()) || cidr != cidr.Masked() {
				t.Errorf("%s: pod CIDR %s is not in %s", n.Name, cidr, network)
			}
			for _, other := range cidrs {
				if cidr.Overlaps(other) {
					t.Errorf("%s: pod CIDR %s overlaps %s", n.Name, cidr, other)
				}
			}
			cidrs = append(cidrs, cidr)
		}
	}
	// The longest path of a unix socket is 107 bytes.
	long := planNodes(Options{Name: strings.Repeat("a", 30), Nodes: MaxNodes}, "/")[MaxNodes-1]
	if path := long.StateDir + "/agent.sock"; len(path) > 107 {
		t.Errorf("%s is too long for a socket", path)
	}
}

func TestMarkIsUnambiguous(t *testing.T) {
	for name, want := range map[string]string{
		"bl-a-n1": "a", "bl-a-n1.web": "a", "bl-a-wire": "a", "bl-a-n1-n1": "a-n1", "bl-a-wire-n2.x": "a-wire",
		"bl-a": "", "bl-a-web": "", "bl--n1": "", "bl-a-n1.": "", "bl-a-n1.web.x": "", "cni-1": "", "bl-a.b-n1": "",
	} {
		got := ""
		if m := mark.FindStringSubmatch(name); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s belongs to lab %q, want %q", name, got, want)
		}
	}
}

func TestRequirementsWithoutRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		// The test binary may lie where only root can read it: run it from an open file.
		self, err := os.Open(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		defer self.Close()
		cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestRequirementsWithoutRoot$")
		cmd.Dir, cmd.ExtraFiles = "/", []*os.File{self}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, said)
		}
		return
	}
	if _, err := Up(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "needs root") {
		t.Errorf("Up without root gives %v", err)
	}
}

// Nodes are spread over subnets in their order, with as many in each as can be; each subnet has addresses of its own.
func TestSubnets(t *testing.T) {
	for _, c := range []struct {
		nodes, subnets int
		want           []int
	}{{3, 1, []int{0, 0, 0}}, {3, 2, []int{0, 0, 1}}, {2, 2, []int{0, 1}}, {5, 3, []int{0, 0, 1, 1, 2}}} {
		o := Options{Name: "a", Nodes: c.nodes, Subnets: c.subnets, IPv6: true}
		seen := map[netip.Prefix]int{}
		for i, n := range planNodes(o, "/cgroup") {
			if n.Subnet != c.want[i] {
				t.Errorf("%d nodes in %d subnets: node %d is in %d, want %d", c.nodes, c.subnets, i+1, n.Subnet, c.want[i])
			}
			for _, a := range n.Addresses {
				if s, known := seen[a.Masked()]; known && s != n.Subnet {
					t.Errorf("%s is subnet %d and %d", a.Masked(), s, n.Subnet)
				}
				seen[a.Masked()] = n.Subnet
			}
			for _, r := range o.wire(n.Subnet, routerHost) {
				if !slices.ContainsFunc(n.Addresses, func(a netip.Prefix) bool { return a.Masked() == r.Masked() && a != r }) {
					t.Errorf("router %s is not a neighbour of %v", r, n.Addresses)
				}
			}
		}
		if len(seen) != 2*c.subnets {
			t.Errorf("%d subnets have the prefixes %v", c.subnets, seen)
		}
	}
}
