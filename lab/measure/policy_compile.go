package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
)

// compile records what it takes to turn many policies into what is enforced. A contender that has had a few only gets
// them for that.
func (b *policyBench) compile(ctx context.Context, l *policyLane) error {
	b.progress.Step("compiling %d policies: %s", policies.Many, l.contender.Name())
	c := result.PolicyCompile{Contender: l.contender.Name(), Policies: policies.Many, Pods: policies.Many}
	var err error
	if l.policed.Watches() {
		err = l.compiledByAgents(ctx, b.plan, &c)
	} else {
		err = l.compiledHere(ctx, b.plan, &c)
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	if err != nil {
		b.progress.Note("compiling policies: %s: %v", c.Contender, err)
		c.Error = err.Error()
	}
	b.run.Policy.Compiled = append(b.run.Policy.Compiled, c)
	b.progress.Advance(time.Duration(b.plan.Scratches) * aScratch)
	return nil
}

// compiledHere puts the many, and times the command that takes all rules at once: it knows no smaller step.
func (l *policyLane) compiledHere(ctx context.Context, p PolicyPlan, c *result.PolicyCompile) error {
	c.Source = "iptables-restore with the rules of all pods of the slower node, without making these"
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
		c.ScratchMilliseconds = append(c.ScratchMilliseconds, float64(took)/float64(time.Millisecond))
	}
	c.ChangeMilliseconds = c.ScratchMilliseconds
	return nil
}

// compiledByAgents asks the agents.
func (l *policyLane) compiledByAgents(context.Context, PolicyPlan, *result.PolicyCompile) error {
	return errors.New("the agents do not say")
}
