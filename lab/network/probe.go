package network

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// requirement is a part of the kernel that networks need. It is there if a command succeeds in a network namespace that
// ends with it.
type requirement struct {
	// what names the part, with the option of the kernel's configuration.
	what string
	// program and its Debian package have to be installed for the command.
	program, pkg string
	// command is one of the shell.
	command string
	// input is the command's standard input.
	input func() string
}

var (
	bridgeDevices  = device("bridges (CONFIG_BRIDGE)", "ip link add probe type bridge")
	macvlanDevices = device("macvlan devices (CONFIG_MACVLAN)", "ip link add name v0 type veth peer name v1 && ip link add link v0 name probe type macvlan mode bridge")
	vxlanDevices   = device("VXLAN devices (CONFIG_VXLAN)", "ip link add probe type vxlan id 1 dstport 8472")
	dummyDevices   = device("dummy devices (CONFIG_DUMMY)", "ip link add probe type dummy")
	nftTables      = requirement{what: "nftables (CONFIG_NF_TABLES)", program: "nft", pkg: "nftables", command: "nft add table ip probe"}
	ipSets         = requirement{what: "ipset (CONFIG_IP_SET)", program: "ipset", pkg: "ipset", command: "ipset create probe hash:ip,port"}
	kubeProxyRules = requirement{
		what: "kube-proxy's rules", program: "iptables-restore", pkg: "iptables", command: "iptables-restore",
		input: func() string { return netfilterRules(testbed.PodNetworkIPv4, 1, true) },
	}
	policyMatches = requirement{
		what: "rules of policies (xt_conntrack, xt_mark)", program: "iptables", pkg: "iptables",
		command: "iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -m mark ! --mark " + policyMark + " -j MARK --or-mark " + policyBits,
	}
)

func device(what, command string) requirement {
	return requirement{what: what, program: "ip", pkg: "iproute2", command: command}
}

// probed are the results of earlier probes, by the command.
var probed sync.Map

// lacks names the first requirement that this machine does not fulfil; it is empty if it fulfils all.
func lacks(needs ...requirement) string {
	for _, r := range needs {
		known, ok := probed.Load(r.command)
		if !ok {
			known, _ = probed.LoadOrStore(r.command, r.probe())
		}
		if known != "" {
			return known.(string)
		}
	}
	return ""
}

func (r requirement) probe() string {
	if os.Geteuid() != 0 {
		return "" // the lab says so itself
	}
	if _, err := exec.LookPath(r.program); err != nil {
		return fmt.Sprintf("not installed: %s (Debian package %s)", r.program, r.pkg)
	}
	cmd := exec.Command("sh", "-c", r.command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
	if r.input != nil {
		cmd.Stdin = strings.NewReader(r.input())
	}
	if said, err := cmd.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		return fmt.Sprintf("not on this kernel: %s: %v: %s", r.what, err, line)
	}
	return ""
}
