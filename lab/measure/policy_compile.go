package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// serverNode is the node, counted from 0, on which compiling is measured: it has policies.LocalOthers.
const serverNode = 1

// compiledHere puts many policies and pods beside the few that a network has had, and times the command that takes all
// rules at once: it knows no smaller step.
func (l *policyTestbed) compiledHere(ctx context.Context, p PolicyPlan, c *result.PolicyCompile) error {
	c.Source = "iptables-restore with the rules of all pods of the node, without making these; it takes one changed rule as all of them"
	many, err := policies.Fill(policies.Many, policies.Many)
	if err != nil {
		return err
	}
	if err := l.objects.Put(many...); err != nil {
		return err
	}
	for range p.Scratches {
		took, err := l.policed.Enforce(ctx, l.lab, l.objects)
		if err != nil {
			return fmt.Errorf("enforce: %w", err)
		}
		c.FullMilliseconds = append(c.FullMilliseconds, milliseconds(took))
	}
	c.ChangeMilliseconds = c.FullMilliseconds
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// restarting is a network whose agents can begin anew.
type restarting interface {
	Restart(ctx context.Context, lab *testbed.Lab, node *testbed.Node, between func() error) error
}

// compiledByAgent times what an agent takes that knows nothing. The many policies go, then the agent of the server's node ends, they come
// back, and it starts: so it compiles all policies at once and writes all that the kernel has of them. Pods stay where they are.
func (l *policyTestbed) compiledByAgent(ctx context.Context, p PolicyPlan, c *result.PolicyCompile) error {
	c.Source = "the log of the second node's agent, which starts with all of them there: from what it knows until it is in the kernel's tables"
	agents, ok := l.policed.(restarting)
	if !ok {
		return fmt.Errorf("agents of %s cannot be started anew", l.network.Name())
	}
	there, err := l.tablesOf(ctx, serverNode)
	if err != nil {
		return err
	}
	node, many := l.lab.Node(serverNode), l.policed.Present().Others()
	for range p.Scratches {
		from, err := l.logSize()
		if err != nil {
			return err
		}
		if err := l.remove(ctx, many...); err != nil {
			return err
		}
		if _, err := l.untilWritten(ctx, from, there.Policies-len(many)); err != nil {
			return errors.Join(err, l.put(ctx, many...)) // whatever is measured next is measured among them
		}
		if err := agents.Restart(ctx, l.lab, node, func() error { return l.put(ctx, many...) }); err != nil {
			return errors.Join(err, l.put(ctx, many...))
		}
		passes, err := l.untilWritten(ctx, 0, there.Policies)
		if err != nil {
			return err
		}
		var all policyPass
		for _, pass := range passes {
			all.compile, all.apply, all.changed = all.compile+pass.compile, all.apply+pass.apply, all.changed+pass.changed
		}
		if all.changed < len(many) {
			return fmt.Errorf("the agent that started anew has written %d entries for %d policies", all.changed, len(many))
		}
		c.FullMilliseconds = append(c.FullMilliseconds, milliseconds(all.compile+all.apply))
		c.CompilerMilliseconds = append(c.CompilerMilliseconds, milliseconds(all.compile))
	}
	if there, err = l.tablesOf(ctx, serverNode); err == nil {
		c.TableBytes = there.Bytes
	}
	return err
}

// amongMany gives an error unless many policies are in force, among which changes are said to be timed: in the tables of the server's node, or
// among the objects of who has no tables.
func (l *policyTestbed) amongMany(ctx context.Context) error {
	there := len(l.objects.Policies())
	if l.policed.Watches() {
		t, err := l.tablesOf(ctx, serverNode)
		if err != nil {
			return err
		}
		there = t.Policies
	}
	if there < policies.Many {
		return fmt.Errorf("%d policies are in force, want at least %d", there, policies.Many)
	}
	return nil
}

// untilWritten waits until the agent of the server's node has written so many policies, and gives what it has done for that by its log from a
// place on.
func (l *policyTestbed) untilWritten(ctx context.Context, from, policies int) ([]policyPass, error) {
	ctx, cancel := context.WithTimeout(ctx, policyPatience)
	defer cancel()
	for {
		passes, err := l.passes(from)
		if err != nil {
			return nil, err
		}
		for i, pass := range passes {
			if pass.policies == policies {
				return passes[:i+1], nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d policies in the agent's log: %w", policies, ctx.Err())
		case <-time.After(holdPause):
		}
	}
}

// changedByAgent reads what label changes took from a place in the agent's log on.
func (l *policyTestbed) changedByAgent(from int, c *result.PolicyCompile) error {
	passes, err := l.passes(from)
	for _, pass := range passes {
		if pass.changed > 0 {
			c.ChangeMilliseconds = append(c.ChangeMilliseconds, milliseconds(pass.compile+pass.apply))
		}
	}
	return err
}

// logSize is how long the log of the server's node is.
func (l *policyTestbed) logSize() (int, error) {
	text, err := os.ReadFile(network.AgentLog(l.lab.Node(serverNode)))
	return len(text), err
}

func (l *policyTestbed) passes(from int) ([]policyPass, error) {
	text, err := os.ReadFile(network.AgentLog(l.lab.Node(serverNode)))
	if err != nil {
		return nil, err
	}
	return policyPasses(string(text[min(from, len(text)):]))
}

// policyWritten is the message of an agent that has put policies into tables.
const policyWritten = "NetworkPolicies written"

// policyPass is one time that an agent has put policies into tables: how many policies there were, how many entries changed, and how long
// compiling and writing took.
type policyPass struct {
	policies, changed int
	compile, apply    time.Duration
}

// policyPasses reads an agent's log.
func policyPasses(log string) (list []policyPass, err error) {
	for line := range strings.Lines(log) {
		if !strings.Contains(line, policyWritten) || !strings.HasSuffix(line, "\n") {
			continue // the rest of a line that is being written comes later
		}
		var pass policyPass
		var errs [4]error
		pass.policies, errs[0] = strconv.Atoi(attribute(line, "policies"))
		pass.changed, errs[1] = strconv.Atoi(attribute(line, "changed"))
		pass.compile, errs[2] = time.ParseDuration(attribute(line, "compile"))
		pass.apply, errs[3] = time.ParseDuration(attribute(line, "apply"))
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("read log of agent: %q: %w", line, err)
		}
		list = append(list, pass)
	}
	return list, nil
}

// attribute is the value of a key in a line of slog's text format, one without blanks.
func attribute(line, key string) string {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	return value
}
