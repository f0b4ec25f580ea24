//go:build kubernetes

package smoke

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// reply is what a probe's server says: its pod and node, and the address of the client as it sees it.
type reply struct{ Pod, Node, Client string }

// ask asks who is at an address, so many times.
func ask(from runner, address string, flags ...string) (all []reply, err error) {
	output, err := from.try(append([]string{"ask", address}, flags...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(output) {
		var a reply
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return nil, fmt.Errorf("reply of %s: %w: %s", address, err, line)
		}
		all = append(all, a)
	}
	return all, nil
}

// mustAsk ends the test when there is no reply.
func mustAsk(t *testing.T, from runner, address string, flags ...string) []reply {
	t.Helper()
	all, err := ask(from, address, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantReply wants this reply. Fields of the wanted one that are empty may be anything.
func wantReply(t *testing.T, from runner, address string, want reply) {
	t.Helper()
	all, err := ask(from, address)
	if err != nil {
		t.Error(err)
		return
	}
	got := all[0]
	for _, field := range []struct{ name, got, want string }{
		{"pod", got.Pod, want.Pod}, {"node", got.Node, want.Node}, {"client address", got.Client, want.Client},
	} {
		if field.want != "" && field.got != field.want {
			t.Errorf("%s asks %s: %s is %q, want %q", from.name, address, field.name, field.got, field.want)
		}
	}
}

// pods counts the answers by pod.
func pods(all []reply) map[string]int {
	count := map[string]int{}
	for _, a := range all {
		count[a.Pod]++
	}
	return count
}
