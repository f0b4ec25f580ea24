package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// beelineLab runs the program with arguments and gives its exit code and what it printed.
func beelineLab(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), cli.Env{Stdout: &out, Stderr: &errs}, newRootCommand, args)
	return code, out.String(), errs.String()
}

func TestLabFromUpToDown(t *testing.T) {
	testenv.Root(t)
	const lab = "--name=t-cli"
	t.Cleanup(func() {
		var none bytes.Buffer
		cli.Run(context.Background(), cli.Env{Stdout: &none, Stderr: &none}, newRootCommand, []string{"down", lab})
	})
	steps := []struct {
		args []string
		code int
		// want is a part of the output: of stdout for code 0, else of stderr.
		want string
	}{
		{[]string{"exec", lab, "n1", "true"}, 1, "beeline-lab up --name t-cli creates it"},
		{[]string{"up", lab, "--network", "nothing"}, 1, "there are: node, node+netfilter, beeline"},
		{[]string{"up", lab, "--network", "node", "--mtu", "10"}, 1, "--mtu 10"},
		{[]string{"up", lab, "--network", "node", "--nodes", "0"}, 1, "beeline-lab: --nodes 0: want 1 to 20\n"},
		{[]string{"pu"}, 1, `unknown command "pu"`},
		{[]string{"up", lab, "extra"}, 1, "beeline-lab up takes no arguments"},
		{[]string{"add-pod", lab, "n1"}, 1, "usage: beeline-lab add-pod NODE NAME"},
		{[]string{"up", lab, "--network", "node"}, 0, "beeline-lab add-pod --name t-cli n1 client"},
		{[]string{"up", lab, "--network", "node"}, 1, "up already"},
		{[]string{"add-pod", lab, "n1", "client"}, 0, "has no pods"},
		{[]string{"add-pod", lab, "n9", "client"}, 1, `no node "n9"`},
		{[]string{"del-pod", lab, "client"}, 1, `no pod "client"`},
		{[]string{"exec", lab, "n2", "--", "sh", "-c", "exit 7"}, 7, ""},
		{[]string{"exec", lab, "n2", "sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{[]string{"exec", lab, "n2", "--", "hostname", "--no-such-option"}, 255, "unrecognized option"},
		{[]string{"exec", lab, "n2", "--", "no-such-command"}, 127, "beeline-lab: no program \"no-such-command\" in node n2\n"},
		{[]string{"exec", lab, "n2", "--"}, 1, "no command"},
		{[]string{"exec", lab, "n2", "--", "cat", "/proc/self/cgroup"}, 0, "/beeline-lab/t-cli/n2"},
		{[]string{"exec", lab, "n2", "--", "getent", "hosts", "n1"}, 0, "192.168.77.1"},
		{[]string{"exec", lab, "n9", "--", "true"}, 1, `no node or pod "n9"`},
		{[]string{"status"}, 0, `Lab "t-cli": 2 nodes, network node, MTU 1500`},
		{[]string{"status", "-o", "yaml"}, 1, "neither text nor json"},
		{[]string{"down", lab, "--all"}, 1, "none of the others can be"},
		{[]string{"down", lab}, 0, `Lab "t-cli" is gone.`},
		{[]string{"down", lab}, 0, `There is no lab "t-cli".`},
	}
	for _, step := range steps {
		code, stdout, stderr := beelineLab(t, step.args...)
		output := stdout
		if step.code != 0 {
			output = stderr
		}
		if code != step.code || !strings.Contains(output, step.want) {
			t.Fatalf("beeline-lab %s: exit code %d, want %d; printed\n%s%swant %q",
				strings.Join(step.args, " "), code, step.code, stdout, stderr, step.want)
		}
	}
}

func TestLabStatusAsJSON(t *testing.T) {
	testenv.Root(t)
	t.Cleanup(func() {
		var none bytes.Buffer
		cli.Run(context.Background(), cli.Env{Stdout: &none, Stderr: &none}, newRootCommand, []string{"down", "--name=t-json"})
	})
	if code, _, stderr := beelineLab(t, "up", "--name=t-json", "--network=node+netfilter", "--nodes=3"); code != 0 {
		t.Fatal(stderr)
	}
	_, stdout, _ := beelineLab(t, "status", "-o", "json")
	var labs []labStatus
	if err := json.Unmarshal([]byte(stdout), &labs); err != nil {
		t.Fatalf("%v in\n%s", err, stdout)
	}
	for _, lab := range labs {
		if lab.Name == "t-json" {
			if !lab.Whole || lab.Network != "node+netfilter" || len(lab.Nodes) != 3 || lab.Nodes[2].Name != "n3" || lab.Nodes[2].Path == "" {
				t.Errorf("lab is %+v", lab)
			}
			return
		}
	}
	t.Errorf("lab t-json is not in\n%s", stdout)
}
