package network

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/testbed"
)

func TestNetfilterRules(t *testing.T) {
	for _, f := range families(true) {
		rules := string(netfilterRules(f.podNetwork, 50, true))
		count := func(prefix string) int { return strings.Count(rules, "\n-A "+prefix) }
		for prefix, want := range map[string]int{
			"KUBE-SERVICES -d ": 50,
			"KUBE-SVC-":         50 * 3,  // masquerade what comes from outside, then one of two endpoints
			"KUBE-SEP-":         100 * 2, // masquerade hairpins, then DNAT
			"POSTROUTING -s ":   1,
		} {
			if got := count(prefix); got != want {
				t.Errorf("%s: %d rules begin with %q, want %d", f.restore, got, prefix, want)
			}
		}
		chains := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^:(\S+) `).FindAllStringSubmatch(rules, -1) {
			if len(m[1]) > 28 {
				t.Errorf("iptables takes no name as long as %s", m[1])
			}
			chains[m[1]] = true
		}
		if len(chains) < 150 {
			t.Errorf("%d chains: names of Services or endpoints clash", len(chains))
		}
		if without := string(netfilterRules(f.podNetwork, 50, false)); strings.Contains(without, "-A POSTROUTING -s") {
			t.Error("the exception for packets between pods is there where it was not asked for")
		}
	}
}

// The rules are there to be passed by what is measured: their counters show that it does.
func TestTrafficPassesTheRules(t *testing.T) {
	for c, chain := range map[Network]string{
		nodeNetfilter: "INPUT -j KUBE-FIREWALL",
		ptp:           "KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\"",
		bridge:        "KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\"",
		overlay:       "KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\"",
	} {
		t.Run(c.Name(), func(t *testing.T) {
			lab := up(t, c, testbed.Options{})
			from, to := addPod(t, c, lab, 0, "from"), addPod(t, c, lab, 1, "to")
			if err := Verify(t.Context(), c, from, to); err != nil {
				t.Fatal(err)
			}
			for _, node := range lab.Nodes() {
				out, err := node.Output(t.Context(), "iptables-save", "--counters")
				if err != nil {
					t.Fatal(err)
				}
				for line := range bytes.Lines(out) {
					if bytes.Contains(line, []byte("-A "+chain)) && bytes.HasPrefix(line, []byte("[0:0]")) {
						t.Errorf("%s: no packet has passed %s", node.Name, line)
					}
				}
				if !bytes.Contains(out, []byte("-A "+chain)) {
					t.Errorf("%s has no rule %s", node.Name, chain)
				}
			}
		})
	}
}

func TestVerifyFindsTranslation(t *testing.T) {
	c := ptp
	lab := up(t, c, testbed.Options{})
	from, to := addPod(t, c, lab, 0, "from"), addPod(t, c, lab, 1, "to")
	_, err := lab.Node(0).Output(t.Context(), "iptables", "-t", "nat", "-D", "POSTROUTING",
		"-s", testbed.PodNetworkIPv4.String(), "-d", testbed.PodNetworkIPv4.String(),
		"-m", "comment", "--comment", "pods reach pods without translation", "-j", "ACCEPT")
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), c, from, to); err == nil || !strings.Contains(err.Error(), "must not be translated") {
		t.Errorf("Verify gives %v for a translated address", err)
	}
}

func TestVerifyFindsABrokenPath(t *testing.T) {
	c := ptp
	lab := up(t, c, testbed.Options{})
	from, to := addPod(t, c, lab, 0, "from"), addPod(t, c, lab, 1, "to")
	if _, err := lab.Node(0).Output(t.Context(), "ip", "route", "replace", "unreachable", "10.77.2.0/24"); err != nil {
		t.Fatal(err)
	}
	err := Verify(t.Context(), c, from, to)
	if err == nil || !strings.Contains(err.Error(), "ptp: from from on n1 to to on n2") {
		t.Errorf("Verify gives %v for a path that is not there", err)
	}
}
