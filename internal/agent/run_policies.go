package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/policy"
)

// newPolicies makes what brings NetworkPolicies into the datapath, where that puts them into force.
func (a *Agent) newPolicies() (err error) {
	if a.ways.policy != PolicyEBPF {
		return nil
	}
	compiler := a.newCompiler()
	a.policies = newPolicies(a.datapath.Policies, compiler.Compile, a.config.Manifests != "", a.metrics, a.log)
	a.policies.postponed = compiler.Postponed
	a.policies.changed = a.policiesChanged
	a.policies.beat = a.beats.Add("the loop of policies")
	a.policies.filledFirst = a.reconcileSoon   // programs may wait for it
	a.policies.completeAgain = a.reconcileSoon // the node may not have been ready for it
	a.policies.failClosed = a.failClosed.Update
	a.policies.fresh = a.datapath.PoliciesFresh()
	a.policiesLost, err = a.datapath.PoliciesLost()
	return err
}

// runPolicies carries NetworkPolicies into the datapath until ctx ends.
func (a *Agent) runPolicies(ctx context.Context) error {
	if a.policies == nil {
		<-ctx.Done()
		return nil
	}
	return a.policies.run(ctx)
}

// policiesChanged has it looked at what is to be told. It does not block.
func (a *Agent) policiesChanged() {
	if t := a.policies.current().tables; t != nil {
		a.flows.UpdatePolicies(t.Names)
	}
	a.lookAgain()
}

// feedPolicies tells what has been found out about the node. When the agent starts it waits for policies that are known already.
func (a *Agent) feedPolicies(want desired) {
	if a.policies == nil {
		return
	}
	a.policies.setPods(a.policyPods())
	a.policies.setNode(want.services.HostPortAddresses)
	if !a.policies.current().filled {
		_ = a.policies.pass() // what failed is in the outcome
	}
}

// closeUntilKnown closes a pod that is being added, if policies may have to do with it, before anything can reach it: number is that of the
// pass to wait for, 0 if there is none.
func (a *Agent) closeUntilKnown(e agentapi.Endpoint) (number uint64, err error) {
	if a.policies == nil {
		return 0, nil
	}
	pods, namespace := a.policyPods(), policyPodOf(e).Pod.Namespace
	ingress, egress := a.policies.isolates(namespace)
	if !ingress && !egress {
		a.policies.setPods(pods)
		// A policy that comes from here on is compiled with the pod; one that has come meanwhile was compiled without it.
		ingress, egress = a.policies.isolates(namespace)
		if !ingress && !egress && !a.policies.mayKnow(e.Addresses) {
			return 0, nil
		}
	}
	return a.policies.close(pods, e.Addresses)
}

// unknownPolicies says what policies wait for.
func unknownPolicies(s *cluster.Snapshot) string {
	var missing []string
	for _, kind := range policyKinds {
		if s.Unknown.Has(kind) {
			missing = append(missing, string(kind))
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("NetworkPolicies wait for the cluster's lists of %s: those of before stay in force, and pods that are added are closed", strings.Join(missing, ", "))
	}
	return "NetworkPolicies in manifests that were there when the agent started are not understood: those of before stay in force, and pods that are added are closed"
}

// noEffect says that nobody puts the cluster's policies into force.
func noEffect(s *cluster.Snapshot) string {
	return "NetworkPolicies have no effect by this agent (--policy=none): " + named(s.NetworkPolicies)
}

// newCompiler makes a compiler that keeps to the sizes of the tables.
func (a *Agent) newCompiler() *policy.Compiler {
	c := policy.NewCompiler(a.config.NodeName)
	sizes := a.config.PolicySizes
	c.Bound(policy.Sizes{Addresses: sizes.Identities, Policies: sizes.Policies, Ports: int(datapath.PolicyPorts(uint32(sizes.Policies)))})
	return c
}
