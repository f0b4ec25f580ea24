//go:build kubernetes

package smoke

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// reply is that of a probe's server: its pod and node, and the client's address.
type reply struct{ Pod, Node, Client string }

// ask sends requests to an address and returns the replies.
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

// mustAsk ends the test if there is no reply.
func mustAsk(t *testing.T, from runner, address string, flags ...string) []reply {
	t.Helper()
	all, err := ask(from, address, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantReply wants this reply. Empty fields match anything.
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

// pods counts the replies by pod.
func pods(all []reply) map[string]int {
	count := map[string]int{}
	for _, a := range all {
		count[a.Pod]++
	}
	return count
}
