package measure

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/lab/contender"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
)

// policyMaps are the tables that NetworkPolicies are put into; those of connections are not among them.
var policyMaps = []string{"policed_pods", "identities", "blocks", "policies", "policy_ports"}

// compiledHere puts many policies and pods beside the few that a contender has had, and times the command that takes all
// rules at once: it knows no smaller step.
func (l *policyLane) compiledHere(ctx context.Context, p PolicyPlan, c *result.PolicyCompile) error {
	c.Source = "iptables-restore with the rules of all pods of a node, without making these; it takes one changed rule as all of them"
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
		c.ScratchMilliseconds = append(c.ScratchMilliseconds, milliseconds(took))
	}
	c.ChangeMilliseconds = c.ScratchMilliseconds
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// logs is how long the logs of a lane's agents are.
type logs []int

func (l *policyLane) logs() (sizes logs, err error) {
	for _, node := range l.lab.Nodes() {
		text, err := os.ReadFile(contender.AgentLog(node))
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, len(text))
	}
	return sizes, nil
}

// compiledByAgents reads what the agents have written in their logs: everything was there when they began, so the tables that
// changed most were made from nothing, and those between two moments were made for label changes.
func (l *policyLane) compiledByAgents(ctx context.Context, from, to logs, c *result.PolicyCompile) error {
	c.Source = "the logs of both agents: from what they know until it is in the kernel's tables"
	for i, node := range l.lab.Nodes() {
		text, err := os.ReadFile(contender.AgentLog(node))
		if err != nil {
			return err
		}
		if all := policyPasses(string(text[:from[i]])); len(all) > 0 {
			largest := slices.MaxFunc(all, func(a, b policyPass) int { return a.changed - b.changed })
			c.ScratchMilliseconds = append(c.ScratchMilliseconds, largest.milliseconds)
		}
		for _, pass := range policyPasses(string(text[from[i]:to[i]])) {
			c.ChangeMilliseconds = append(c.ChangeMilliseconds, pass.milliseconds)
		}
		bytes, err := l.tableBytes(ctx, i)
		if err != nil {
			return err
		}
		c.TableBytes = max(c.TableBytes, bytes)
	}
	if len(c.ScratchMilliseconds) == 0 {
		return fmt.Errorf("read logs of agents: no line %q", policyWritten)
	}
	return nil
}

// policyWritten is the message of an agent that has put policies into tables.
const policyWritten = "NetworkPolicies written"

// policyPass is one time that an agent has put policies into tables: how many entries changed, and how long compiling and
// writing took.
type policyPass struct {
	changed      int
	milliseconds float64
}

// policyPasses reads from an agent's log each time that something changed.
func policyPasses(log string) []policyPass {
	var list []policyPass
	for line := range strings.Lines(log) {
		if !strings.Contains(line, policyWritten) {
			continue
		}
		changed, err := strconv.Atoi(attribute(line, "changed"))
		compile, err1 := time.ParseDuration(attribute(line, "compile"))
		apply, err2 := time.ParseDuration(attribute(line, "apply"))
		if err == nil && err1 == nil && err2 == nil && changed > 0 {
			list = append(list, policyPass{changed, milliseconds(compile + apply)})
		}
	}
	return list
}

// attribute is the value of a key in a line of slog's text format, one without blanks.
func attribute(line, key string) string {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	return value
}

// tableBytes is what the tables of policy hold on a node.
func (l *policyLane) tableBytes(ctx context.Context, node int) (bytes uint64, err error) {
	status, err := api.NewClient(contender.AgentSocket(l.contender, l.lab.Node(node))).Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask agent for its maps: %w", err)
	}
	for _, m := range status.Maps {
		if slices.Contains(policyMaps, m.Name) {
			bytes += m.Bytes
		}
	}
	return bytes, nil
}
