package policy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// serverNode is the node, counted from 0, on which compiling is measured: it has policies.LocalOthers.
const serverNode = 1

// compiledHere adds many policies and pods to the few of a network, and times the command that takes all rules at once:
// it has no smaller step.
func (m *member) compiledHere(ctx context.Context, compiles int, c *result.PolicyCompile) error {
	c.Source = "iptables-restore with the rules of all pods of the node, without making these; it takes one changed rule as all of them"
	if err := m.API.Put(policies.Fill()...); err != nil {
		return err
	}
	for range compiles {
		took, err := m.enforcer.Enforce(ctx, m.Lab, m.API)
		if err != nil {
			return fmt.Errorf("enforce: %w", err)
		}
		c.FullMilliseconds = append(c.FullMilliseconds, milliseconds(took))
	}
	c.ChangeMilliseconds = c.FullMilliseconds
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// restarter is a network that can restart its agents.
type restarter interface {
	Restart(ctx context.Context, lab *testbed.Lab, node *testbed.Node, between func() error) error
}

// compiledByAgent times what an agent takes that starts among many policies. It removes the policies, ends the agent of
// the server's node, puts them back and starts the agent, which then compiles and writes all of them at once. Pods
// stay.
func (m *member) compiledByAgent(ctx context.Context, compiles int, c *result.PolicyCompile) error {
	c.Source = "the log of the second node's agent, which starts with all of them there: from what it knows until it is in the kernel's tables"
	agents, ok := m.enforcer.(restarter)
	if !ok {
		return fmt.Errorf("agents of %s cannot be restarted", m.Name())
	}
	there, err := m.tablesOf(ctx, serverNode)
	if err != nil {
		return err
	}
	node, many := m.Lab.Node(serverNode), m.present.Others()
	for range compiles {
		from, err := m.logSize()
		if err != nil {
			return err
		}
		if err := m.Delete(ctx, many...); err != nil {
			return err
		}
		if _, err := m.untilWritten(ctx, from, there.Policies-len(many)); err != nil {
			return errors.Join(err, m.Put(ctx, many...)) // the next measurement is among them
		}
		if err := agents.Restart(ctx, m.Lab, node, func() error { return m.Put(ctx, many...) }); err != nil {
			return errors.Join(err, m.Put(ctx, many...))
		}
		writes, err := m.untilWritten(ctx, 0, there.Policies)
		if err != nil {
			return err
		}
		var all policyWrite
		for _, w := range writes {
			all.compile, all.apply, all.changed = all.compile+w.compile, all.apply+w.apply, all.changed+w.changed
		}
		if all.changed < len(many) {
			return fmt.Errorf("the agent that was restarted has written %d entries for %d policies", all.changed, len(many))
		}
		c.FullMilliseconds = append(c.FullMilliseconds, milliseconds(all.compile+all.apply))
		c.CompilerMilliseconds = append(c.CompilerMilliseconds, milliseconds(all.compile))
	}
	if there, err = m.tablesOf(ctx, serverNode); err == nil {
		c.TableBytes = there.Bytes
	}
	return err
}

// amongMany returns an error unless many policies are active: in the tables of the server's node, or among the objects
// of a network without tables. The result says that changes are timed among so many.
func (m *member) amongMany(ctx context.Context) error {
	there := len(apiserver.Objects[*networkingv1.NetworkPolicy](m.API))
	if m.enforcer.Watches() {
		t, err := m.tablesOf(ctx, serverNode)
		if err != nil {
			return err
		}
		there = t.Policies
	}
	if there < policies.Many {
		return fmt.Errorf("%d policies are active, want at least %d", there, policies.Many)
	}
	return nil
}

// untilWritten waits until the agent of the server's node has written so many policies. It returns what the agent's log
// from an offset on has of that.
func (m *member) untilWritten(ctx context.Context, from, policies int) ([]policyWrite, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		writes, err := m.writes(from)
		if err != nil {
			return nil, err
		}
		for i, w := range writes {
			if w.policies == policies {
				return writes[:i+1], nil
			}
		}
		if err := wait.For(ctx, holdPause); err != nil {
			return nil, fmt.Errorf("wait for %d policies in the agent's log: %w", policies, err)
		}
	}
}

// changedByAgent reads what label changes took, from an offset in the agent's log on.
func (m *member) changedByAgent(from int, c *result.PolicyCompile) error {
	writes, err := m.writes(from)
	for _, w := range writes {
		if w.changed > 0 {
			c.ChangeMilliseconds = append(c.ChangeMilliseconds, milliseconds(w.compile+w.apply))
		}
	}
	return err
}

// logSize is the length of the agent's log on the server's node.
func (m *member) logSize() (int, error) {
	text, err := os.ReadFile(network.AgentLog(m.Lab.Node(serverNode)))
	return len(text), err
}

func (m *member) writes(from int) ([]policyWrite, error) {
	text, err := os.ReadFile(network.AgentLog(m.Lab.Node(serverNode)))
	if err != nil {
		return nil, err
	}
	return writesIn(string(text[min(from, len(text)):]))
}

// writtenMessage is what an agent logs when it has written policies into tables.
const writtenMessage = ` msg="NetworkPolicies written" `

// policyWrite is one time that an agent wrote policies into its tables: how many policies there were, how many entries
// changed, and how long compiling and writing took.
type policyWrite struct {
	policies, changed int
	compile, apply    time.Duration
}

// writesIn reads an agent's log.
func writesIn(log string) (list []policyWrite, err error) {
	for line := range strings.Lines(log) {
		_, attributes, found := strings.Cut(line, writtenMessage)
		if !found || !strings.HasSuffix(line, "\n") {
			continue // the rest of a line that is being written comes later
		}
		var w policyWrite
		var compile, apply string
		_, err := fmt.Sscanf(attributes, "policies=%d changed=%d compile=%s apply=%s", &w.policies, &w.changed, &compile, &apply)
		if err == nil {
			w.compile, err = time.ParseDuration(compile)
		}
		if err == nil {
			w.apply, err = time.ParseDuration(apply)
		}
		if err != nil {
			return nil, fmt.Errorf("read log of agent: %q: %w", line, err)
		}
		list = append(list, w)
	}
	return list, nil
}
