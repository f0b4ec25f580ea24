package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// newPolicies makes what brings NetworkPolicies into the datapath, where that puts them into force.
func (a *Agent) newPolicies() (err error) {
	if a.ways.policy != PolicyEBPF {
		return nil
	}
	a.policies = newPolicies(a.datapath.Policies, policy.NewCompiler(a.config.NodeName).Compile, a.config.Manifests != "", a.metrics, a.log)
	a.policies.changed = a.policiesChanged
	a.policies.filledFirst = a.reconcileSoon // programs may wait for it
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

// policiesChanged has it looked at whether pods need programs that they lack, and at what is to be told. It does not block.
func (a *Agent) policiesChanged() {
	if t := a.policies.current().tables; t != nil {
		a.flows.setPolicies(t.Names)
	}
	a.rest.governed()
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
// pass to wait for, 0 if there is none. The program for what the stack sends to the pod is attached first, where policies may be about that.
func (a *Agent) closeUntilKnown(e api.Endpoint) (number uint64, err error) {
	if a.policies == nil {
		return 0, nil
	}
	pods, namespace := a.policyPods(), policyPodOf(e).Pod.Namespace
	ingress, egress := a.policies.isolates(namespace)
	if !ingress && !egress && !a.policies.current().governs(e.Addresses) {
		a.policies.setPods(pods)
		// A policy that comes from here on is compiled with the pod; one that has come meanwhile was compiled without it.
		if ingress, egress = a.policies.isolates(namespace); !ingress && !egress {
			return 0, nil
		}
	}
	if ingress {
		if err := a.datapath.AttachPodRest(e.HostDevice, e.HostIfIndex); err != nil {
			return 0, err
		}
		a.rest.done[e.HostDevice] = e.HostIfIndex
	}
	return a.policies.close(pods, e.Addresses)
}

// governsIngress tells whether policies are about what is sent to a pod.
func (a *Agent) governsIngress(e api.Endpoint) bool {
	return a.policies != nil && a.policies.current().governsIngress(e.Addresses)
}

// attachPod puts programs on a pod's device: all of them where policies are about what is sent to it.
func (a *Agent) attachPod(name string, index int) error {
	if err := a.datapath.AttachPod(name, index); err != nil {
		return err
	}
	if !a.governsIngress(a.endpoints[name]) {
		return nil
	}
	if err := a.datapath.AttachPodRest(name, index); err != nil {
		return err
	}
	a.rest.done[name] = index
	return nil
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
	const named = 3
	var names []string
	for _, p := range s.NetworkPolicies[:min(named, len(s.NetworkPolicies))] {
		names = append(names, p.Key().String())
	}
	if more := len(s.NetworkPolicies) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "NetworkPolicies have no effect by this agent (--policy=none): " + strings.Join(names, ", ")
}
