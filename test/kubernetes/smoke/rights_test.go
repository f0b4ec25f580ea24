//go:build kubernetes

package smoke

import (
	"slices"
	"strings"
	"testing"
)

// agentRights are the permissions of the agent's service account beyond those of every service account, as printed by
// `kubectl auth can-i --list`.
var agentRights = []string{
	"endpointslices.discovery.k8s.io [list watch]",
	"events [create patch]",
	"ipclaims.networking.beeline.dev [create delete get list update watch]",
	"ippools.networking.beeline.dev [list watch]",
	"ippools.networking.beeline.dev/status [patch]",
	"namespaces [list watch]",
	"networkpolicies.networking.k8s.io [list watch]",
	"nodes [get list patch watch]",
	"nodes/status [patch]",
	"pods [get list watch]",
	"services [list watch]",
	"statefulsets.apps [get]",
}

// rightsOfTheAgent: the agent's service account has exactly these permissions.
func rightsOfTheAgent(t *testing.T) {
	needBeeline(t)
	everyones := rightsOf(t, "system:serviceaccount:"+namespace+":default")
	var extra []string
	for _, right := range rightsOf(t, agentAccount) {
		if !slices.Contains(everyones, right) {
			extra = append(extra, right)
		}
	}
	if !slices.Equal(extra, agentRights) {
		t.Errorf("the agent's service account may\n%s\nwant\n%s", strings.Join(extra, "\n"), strings.Join(agentRights, "\n"))
	}
}

// rightsOf lists what a user may do, sorted.
func rightsOf(t *testing.T, user string) (rights []string) {
	t.Helper()
	output := mustKubectl(t, "auth", "can-i", "--list", "--no-headers", "-n", namespace, "--as", user)
	for line := range strings.Lines(output) {
		// RESOURCE [NON-RESOURCE URLS] [RESOURCE NAMES] [VERBS]
		resource, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		open := strings.LastIndex(rest, "[")
		if open < 0 {
			t.Fatalf("no verbs in %q", line)
		}
		verbs := strings.Fields(strings.Trim(rest[open:], "[]"))
		slices.Sort(verbs)
		if names := strings.Join(strings.Fields(rest[:open]), " "); names != "[] []" {
			resource += " " + names
		}
		rights = append(rights, resource+" ["+strings.Join(verbs, " ")+"]")
	}
	slices.Sort(rights)
	return rights
}
