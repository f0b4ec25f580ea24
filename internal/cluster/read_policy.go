package cluster

import (
	"encoding/json"
	"errors"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"
)

// readNetworkPolicy reads a NetworkPolicy as far as it is valid. Omitting an invalid one, or keeping its last state,
// would open pods that should be isolated. If its name is invalid its whole file is rejected.
func (d document) readNetworkPolicy(m *manifest, full *networkingv1.NetworkPolicy, asJSON []byte) []error {
	complaints := d.unmarshal(asJSON, full)
	if len(complaints) > 0 && !onlyRulesInDoubt(asJSON) {
		if err := onlyName(full, asJSON); err != nil {
			return complaints
		}
	}
	policy, wrong := reduceNetworkPolicy(full)
	if isNameWrong(wrong) {
		return append(complaints, d.wrong(full, wrong)...)
	}
	if len(complaints) > 0 {
		policy.Ingress, policy.Egress = nil, nil
		policy.Invalid = withoutPosition(complaints[0])
	}
	m.complaints = append(append(m.complaints, complaints...), d.wrong(full, wrong)...)
	d.add(m, KindNetworkPolicy, policy)
	return nil
}

// readUnknownNetworkPolicy reads a NetworkPolicy of an unknown apiVersion. It isolates the pods that it selects if the
// known version has all its fields except those of rules, otherwise the namespace. It isolates in both directions
// unless its policyTypes say otherwise, because the default of an unknown version is unknown.
func (d document) readUnknownNetworkPolicy(m *manifest, asJSON []byte, unknown error) []error {
	var full networkingv1.NetworkPolicy
	if strict, err := strictjson.UnmarshalStrict(asJSON, &full); (err != nil || len(strict) > 0) && !onlyRulesInDoubt(asJSON) {
		if err := onlyName(&full, asJSON); err != nil {
			return []error{d.errorf("apiVersion", "%s: %w", KindNetworkPolicy, unknown)}
		}
	}
	if len(full.Spec.PolicyTypes) == 0 {
		full.Spec.PolicyTypes = bothDirections()
	}
	policy, wrong := reduceNetworkPolicy(&full)
	complaint := d.errorf("apiVersion", "%s %s: %w", KindNetworkPolicy, policy.Key(), unknown)
	if isNameWrong(wrong) {
		return append([]error{complaint}, d.wrong(&full, wrong)...)
	}
	policy.Ingress, policy.Egress = nil, nil
	policy.Invalid = unknown.Error()
	m.complaints = append(m.complaints, complaint)
	d.add(m, KindNetworkPolicy, policy)
	return nil
}

// onlyName makes a policy isolate its namespace in both directions: after a decoding error its intent is unknown, and
// only its name counts.
func onlyName(full *networkingv1.NetworkPolicy, asJSON []byte) error {
	var named metav1.PartialObjectMetadata
	if err := json.Unmarshal(asJSON, &named); err != nil {
		return err
	}
	*full = networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: named.Namespace, Name: named.Name, UID: named.UID}}
	full.Spec.PolicyTypes = bothDirections()
	return nil
}

func bothDirections() []networkingv1.PolicyType {
	return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
}

// onlyRulesInDoubt reports whether a NetworkPolicy is invalid only by unknown fields in its rules or its metadata.
// The pods that it selects are known then.
func onlyRulesInDoubt(asJSON []byte) bool {
	strict, err := strictjson.UnmarshalStrict(asJSON, new(networkingv1.NetworkPolicy))
	if err != nil {
		return false
	}
	for _, err := range strict {
		var field strictjson.FieldError
		if !errors.As(err, &field) {
			return false
		}
		path := field.FieldPath()
		if !strings.HasPrefix(path, "spec.ingress[") && !strings.HasPrefix(path, "spec.egress[") && !strings.HasPrefix(path, "metadata.") {
			return false
		}
	}
	return true
}

// isNameWrong reports whether the namespace or the name of an object is invalid.
func isNameWrong(wrong []fieldError) bool {
	for _, w := range wrong {
		if w.field == "metadata.name" || w.field == "metadata.namespace" {
			return true
		}
	}
	return false
}

// withoutPosition gives the part of a document.errorf message behind file, line and object.
func withoutPosition(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
