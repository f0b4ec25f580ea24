package chart

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// admissionPolicy gives the chart's policy of that name.
func admissionPolicy(t *testing.T, name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	for _, text := range strings.Split(render(t), "---\n") {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal([]byte(text), &policy); err == nil && policy.Kind == "ValidatingAdmissionPolicy" && policy.Name == name {
			if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
				t.Fatal(err)
			}
			return &policy
		}
	}
	t.Fatalf("the chart has no ValidatingAdmissionPolicy %s", name)
	return nil
}

// compile compiles a policy with the API server's own libraries.
func compile(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	with := cel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: policy.Spec.ParamKind != nil}
	for _, v := range policy.Spec.Variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, with, environment.NewExpressions); result.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, result.Error)
		}
	}
	var conditions, validations []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
	}
	for _, e := range append(conditions, validations...) {
		if result := compiler.CompileCELExpression(e, with, environment.NewExpressions); result.Error != nil {
			t.Fatalf("%s: %v", e.GetExpression(), result.Error)
		}
	}
	fail := policy.Spec.FailurePolicy
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, with, environment.NewExpressions), fail, "policy", "validate", policy.Name)
	none := compiler.CompileCondition(nil, with, environment.NewExpressions)
	return validating.NewValidator(compiler.CompileCondition(validations, with, environment.NewExpressions), matcher, none, none, fail, nil)
}

// agentOf is the user of an agent's requests.
func agentOf(node string) user.Info {
	who := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:beeline", Extra: map[string][]string{}}
	if node != "" {
		who.Extra["authentication.kubernetes.io/node-name"] = []string{node}
	}
	return who
}

// node is a Node as a kubelet registers it, with the taint that the agent removes.
func node() *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"who": "kubelet"}},
		Spec: corev1.NodeSpec{
			PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"},
			Taints: []corev1.Taint{{Key: "dedicated", Value: "bank", Effect: corev1.TaintEffectNoSchedule}, {Key: agentTaint, Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.1.1"}},
			Capacity:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		},
	}
}

const (
	agentTaint      = "node.beeline-cni.github.io/agent-not-ready"
	keyAnnotation   = "networking.beeline.dev/wireguard-public-key"
	ipsecAnnotation = "networking.beeline.dev/ipsec"
)

// An agent's token may write the condition and the taint of its own node, and nothing else. Roles cannot express this.
func TestAdmissionPolicy(t *testing.T) {
	validator := compile(t, admissionPolicy(t, "beeline-agent"))
	unavailable := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "BeelineIsReady"}
	for _, c := range []struct {
		name      string
		who       user.Info
		operation admission.Operation
		status    bool
		before    func(*corev1.Node)
		change    func(*corev1.Node)
		// rejected is a part of the message; empty if the request is allowed.
		rejected string
	}{
		{name: "its condition comes", who: agentOf("n1"), status: true, change: func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, unavailable) }},
		{name: "its condition changes", who: agentOf("n1"), status: true, before: func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, unavailable) },
			change: func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue }},
		{name: "the first condition", who: agentOf("n1"), status: true, before: func(n *corev1.Node) { n.Status = corev1.NodeStatus{} },
			change: func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{unavailable} }},
		{name: "its taint goes", who: agentOf("n1"), change: func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1] }},
		{name: "the only taint goes", who: agentOf("n1"), before: func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[1:] }, change: func(n *corev1.Node) { n.Spec.Taints = nil }},
		{name: "its taint comes", who: agentOf("n1"), before: func(n *corev1.Node) { n.Spec.Taints = nil },
			change: func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: agentTaint, Effect: corev1.TaintEffectNoSchedule}}
			}},
		{name: "its public key comes", who: agentOf("n1"), change: func(n *corev1.Node) { n.Annotations[keyAnnotation] = "key" }},
		{name: "its public key goes", who: agentOf("n1"), before: func(n *corev1.Node) { n.Annotations[keyAnnotation] = "key" }, change: func(n *corev1.Node) { delete(n.Annotations, keyAnnotation) }},
		{name: "its epoch of IPsec comes", who: agentOf("n1"), change: func(n *corev1.Node) { n.Annotations[ipsecAnnotation] = "epoch" }},
		{name: "the epoch of another node", who: agentOf("n2"), change: func(n *corev1.Node) { n.Annotations[ipsecAnnotation] = "epoch" }, rejected: "and no other"},
		{name: "the public key of another node", who: agentOf("n2"), change: func(n *corev1.Node) { n.Annotations[keyAnnotation] = "key" }, rejected: "and no other"},
		{name: "another annotation beside its key", who: agentOf("n1"), rejected: "labels nor annotations", change: func(n *corev1.Node) {
			n.Annotations[keyAnnotation], n.Annotations["who"] = "key", "beeline"
		}},
		{name: "somebody else writes anything", who: &user.DefaultInfo{Name: "system:node:n2"}, status: true, change: func(n *corev1.Node) { n.Status.Addresses = nil }},
		{name: "a service account of another namespace", who: &user.DefaultInfo{Name: "system:serviceaccount:default:beeline"}, change: func(n *corev1.Node) { n.Labels = nil }},

		{name: "the condition of another node", who: agentOf("n2"), status: true, change: func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, unavailable) }, rejected: "and no other"},
		{name: "the taint of another node", who: agentOf("n2"), change: func(n *corev1.Node) { n.Spec.Taints = nil }, rejected: "and no other"},
		{name: "a token of no node", who: agentOf(""), status: true, change: func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, unavailable) }, rejected: "and no other"},
		{name: "a Node is made", who: agentOf("n1"), operation: admission.Create, change: func(*corev1.Node) {}, rejected: "neither make nor delete"},
		{name: "a Node is deleted", who: agentOf("n1"), operation: admission.Delete, change: func(*corev1.Node) {}, rejected: "neither make nor delete"},
		{name: "addresses", who: agentOf("n1"), status: true, change: func(n *corev1.Node) { n.Status.Addresses[0].Address = "8.8.8.8" }, rejected: "conditions into the status"},
		{name: "no addresses", who: agentOf("n1"), status: true, change: func(n *corev1.Node) { n.Status.Addresses = nil }, rejected: "conditions into the status"},
		{name: "capacity", who: agentOf("n1"), status: true, change: func(n *corev1.Node) { n.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("200") }, rejected: "conditions into the status"},
		{name: "the kubelet's port", who: agentOf("n1"), status: true, change: func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = 9 }, rejected: "conditions into the status"},
		{name: "another condition", who: agentOf("n1"), status: true, change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, rejected: "NetworkUnavailable of its Node, and no other"},
		{name: "another condition goes", who: agentOf("n1"), status: true, change: func(n *corev1.Node) { n.Status.Conditions = nil }, rejected: "NetworkUnavailable of its Node, and no other"},
		{name: "another taint goes", who: agentOf("n1"), change: func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[1:] }, rejected: "its own taint"},
		{name: "another taint comes", who: agentOf("n1"), change: func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoExecute})
		}, rejected: "its own taint"},
		{name: "pod ranges", who: agentOf("n1"), change: func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.2.0.0/24"} }, rejected: "its own taint"},
		{name: "no pods are scheduled", who: agentOf("n1"), change: func(n *corev1.Node) { n.Spec.Unschedulable = true }, rejected: "its own taint"},
		{name: "labels", who: agentOf("n1"), change: func(n *corev1.Node) { n.Labels["node-role"] = "bank" }, rejected: "labels nor annotations"},
		{name: "annotations", who: agentOf("n1"), change: func(n *corev1.Node) { n.Annotations = nil }, rejected: "labels nor annotations"},
		{name: "an owner, by which it is collected as garbage", who: agentOf("n1"), rejected: "its owners", change: func(n *corev1.Node) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
		}},
		{name: "a finalizer", who: agentOf("n1"), rejected: "its finalizers", change: func(n *corev1.Node) { n.Finalizers = []string{"example.com/stays"} }},
		{name: "labels, by the status", who: agentOf("n1"), status: true, change: func(n *corev1.Node) { n.Labels = nil }, rejected: "labels nor annotations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, now := node(), node()
			if c.before != nil {
				c.before(old)
				c.before(now)
			}
			c.change(now)
			if c.operation == "" {
				c.operation = admission.Update
			}
			if messages := strings.Join(rejections(t, validator, c.who, c.operation, c.status, old, now), "; "); (c.rejected == "") != (messages == "") || !strings.Contains(messages, c.rejected) {
				t.Errorf("rejected with %q, want %q", messages, c.rejected)
			}
		})
	}
}

// rejections are the messages that reject a request; none if it is allowed.
func rejections(t *testing.T, validator validating.Validator, who user.Info, operation admission.Operation, ofStatus bool, old, now *corev1.Node) (messages []string) {
	t.Helper()
	subresource := ""
	if ofStatus {
		subresource = "status"
	}
	return rejectionsOf(t, validator, who, operation, corev1.SchemeGroupVersion.WithKind("Node"), schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, subresource, now.Name, old, now, nil)
}

// rejectionsOf are those of a request for an object of any kind.
func rejectionsOf(t *testing.T, validator validating.Validator, who user.Info, operation admission.Operation,
	kind schema.GroupVersionKind, resource schema.GroupVersionResource, subresource, name string, oldObject, object, params runtime.Object) (messages []string) {
	t.Helper()
	switch operation {
	case admission.Create:
		oldObject = nil
	case admission.Delete:
		object = nil
	}
	request := &admission.VersionedAttributes{
		Attributes:         admission.NewAttributesRecord(object, oldObject, kind, "", name, resource, subresource, operation, &metav1.UpdateOptions{}, false, who),
		VersionedKind:      kind,
		VersionedObject:    admission.NewLazyObject(object),
		VersionedOldObject: admission.NewLazyObject(oldObject),
	}
	for _, d := range validator.Validate(t.Context(), resource, request, params, nil, celconfig.RuntimeCELCostBudget, nil).Decisions {
		if d.Evaluation == validating.EvalError {
			t.Errorf("an expression fails: %s", d.Message)
		}
		if d.Action != validating.ActionAdmit {
			messages = append(messages, d.Message)
		}
	}
	return messages
}

// An agent's token may change the addresses of its own node's pods, and those that no pod has. Roles cannot express this.
func TestAdmissionPolicyOfClaims(t *testing.T) {
	always, inUse := compile(t, admissionPolicy(t, "beeline-agent-claims")), compile(t, admissionPolicy(t, "beeline-agent-claims-in-use"))
	type object = map[string]any
	claim := func(node, container string, change ...func(claim, spec object)) *unstructured.Unstructured {
		spec := object{"address": "192.0.2.10", "pool": "office", "node": node, "pod": object{"namespace": "bank", "name": "db-0", "uid": "u"}}
		if container != "" {
			spec["containerID"] = container
		}
		made := object{"apiVersion": "networking.beeline.dev/v1alpha1", "kind": "IPClaim", "metadata": object{"name": "192-0-2-10"}, "spec": spec}
		for _, f := range change {
			f(made, spec)
		}
		return &unstructured.Unstructured{Object: made}
	}
	of := func(namespace, pod string) func(claim, spec object) {
		return func(_, spec object) { spec["pod"] = object{"namespace": namespace, "name": pod, "uid": "v"} }
	}
	noPod := func(_, spec object) { delete(spec, "pod") }
	conflict := func(claim, _ object) { claim["status"] = object{"conflict": object{"time": "2026-01-01T00:00:00Z"}} }
	owned := func(claim, _ object) {
		claim["metadata"].(object)["ownerReferences"] = []any{object{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "none"}}
	}
	finalizer := func(claim, _ object) { claim["metadata"].(object)["finalizers"] = []any{"example.com/stays"} }
	n1 := agentOf("n1")
	for _, c := range []struct {
		name      string
		who       user.Info
		operation admission.Operation
		old, now  *unstructured.Unstructured
		// rejected is a part of the message; empty if the request is allowed.
		rejected string
	}{
		{"allocates", n1, admission.Create, nil, claim("n1", "c1"), ""},
		{"changes its own", n1, admission.Update, claim("n1", "c0"), claim("n1", "c1", of("shop", "web-0")), ""},
		{"keeps its own", n1, admission.Update, claim("n1", "c0"), claim("n1", ""), ""},
		{"marks a conflict of its own", n1, admission.Update, claim("n1", "c0"), claim("", "", noPod, conflict), ""},
		{"releases its own", n1, admission.Delete, claim("n1", "c0"), nil, ""},
		{"takes over what is kept for the pod", n1, admission.Update, claim("n2", ""), claim("n1", "c1", of("bank", "db-0")), ""},
		{"releases what is kept", n1, admission.Delete, claim("n2", ""), nil, ""},
		{"releases a conflict", n1, admission.Delete, claim("", "", noPod, conflict), nil, ""},
		{"takes over from a node that is gone", n1, admission.Update, claim("n3", "c0"), claim("n1", "c1"), ""},
		{"keeps that of a node that is gone", n1, admission.Update, claim("n3", "c0"), claim("n3", ""), ""},
		{"releases that of a node that is gone", n1, admission.Delete, claim("n3", "c0"), nil, ""},
		{"takes over from a node that is out of service", n1, admission.Update, claim("off", "c0"), claim("n1", "c1"), ""},
		{"releases that of a node that is out of service", n1, admission.Delete, claim("off", "c0"), nil, ""},
		{"keeps somebody's finalizer", n1, admission.Update, claim("n1", "c0", finalizer), claim("n1", "", finalizer), ""},
		{"removes somebody's finalizer", n1, admission.Update, claim("n1", "c0", finalizer), claim("n1", ""), ""},
		{"somebody else allocates", &user.DefaultInfo{Name: "admin"}, admission.Create, nil, claim("n2", "c1"), ""},
		{"somebody else deletes", &user.DefaultInfo{Name: "admin"}, admission.Delete, claim("n2", "c0"), nil, ""},

		{"allocates for another node", n1, admission.Create, nil, claim("n2", "c1"), "and of no other"},
		{"allocates for no node", n1, admission.Create, nil, claim("", ""), "and of no other"},
		{"a token of no node", agentOf(""), admission.Create, nil, claim("", "c1"), "runs on a Node"},
		{"a token of no node deletes", agentOf(""), admission.Delete, claim("", ""), nil, "runs on a Node"},
		{"a token of no node deletes what a pod has", agentOf(""), admission.Delete, claim("n2", "c0"), nil, "not out of service"},
		{"gives its own to another node", n1, admission.Update, claim("n1", "c0"), claim("n2", "c2"), "and of no other"},
		{"takes an address from a pod of another node", n1, admission.Update, claim("n2", "c0"), claim("n1", "c1"), "not out of service"},
		{"releases that of a pod of another node", n1, admission.Delete, claim("n2", "c0"), nil, "not out of service"},
		{"keeps that of a pod of another node", n1, admission.Update, claim("n2", "c0"), claim("n2", ""), "not out of service"},
		{"marks a conflict of another node's", n1, admission.Update, claim("n2", "c0"), claim("", "", noPod, conflict), "not out of service"},
		{"gives what is kept to another pod", n1, admission.Update, claim("n2", ""), claim("n1", "c1", of("shop", "db-0")), "of that name"},
		{"gives what is kept to no pod", n1, admission.Update, claim("n2", ""), claim("n1", "c1", noPod), "of that name"},
		{"gives a conflict to a pod", n1, admission.Update, claim("", "", noPod, conflict), claim("n1", "c1"), "of that name"},
		{"keeps it for another pod", n1, admission.Update, claim("n3", ""), claim("n3", "", of("shop", "web-0")), "changes nothing else"},
		{"keeps it for a conflict", n1, admission.Update, claim("n3", ""), claim("n3", "", conflict), "changes nothing else"},
		{"an owner, by which it is collected as garbage", n1, admission.Update, claim("n1", "c0"), claim("n1", "c0", owned), "owners nor finalizers"},
		{"a finalizer, by which it stays", n1, admission.Create, nil, claim("n1", "c0", finalizer), "owners nor finalizers"},
	} {
		messages := claimRejections(t, always, c.who, c.operation, c.old, c.now, nil)
		for _, name := range []string{"n1", "n2", "off"} {
			of := node()
			if of.Name = name; name == "off" {
				of.Spec.Taints = append(of.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
			}
			if c.operation != admission.Create { // the policy has its matchConstraints
				messages = append(messages, claimRejections(t, inUse, c.who, c.operation, c.old, c.now, of)...)
			}
		}
		if text := strings.Join(messages, "; "); (c.rejected == "") != (text == "") || !strings.Contains(text, c.rejected) {
			t.Errorf("%s: rejected with %q, want %q", c.name, text, c.rejected)
		}
	}
}

// claimRejections are those of a request for an IPClaim.
func claimRejections(t *testing.T, validator validating.Validator, who user.Info, operation admission.Operation, old, now *unstructured.Unstructured, params runtime.Object) []string {
	t.Helper()
	var before, after runtime.Object
	if old != nil {
		before = old
	}
	if now != nil {
		after = now
	}
	kind := schema.GroupVersionKind{Group: "networking.beeline.dev", Version: "v1alpha1", Kind: "IPClaim"}
	return rejectionsOf(t, validator, who, operation, kind, kind.GroupVersion().WithResource("ipclaims"), "", "192-0-2-10", before, after, params)
}
