//go:build kubernetes

package smoke

import (
	"slices"
	"strings"
	"testing"
)

// agentRights are all that the agent's service account may do beyond what every service account may: resources with
// the verbs, as `kubectl auth can-i --list` prints them.
var agentRights = []string{
	"endpointslices.discovery.k8s.io [list watch]",
	"events [create patch]",
	"namespaces [list watch]",
	"networkpolicies.networking.k8s.io [list watch]",
	"nodes [list patch watch]",
	"nodes/status [patch]",
	"pods [list watch]",
	"services [list watch]",
}

// rightsOfTheAgent: the agent's service account can do what it has to, and nothing else.
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
