package cluster

import (
	"encoding/json"
	"errors"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"
)

// readNetworkPolicy reads a NetworkPolicy as far as it can: to leave one out, or to keep what it was before, would open pods that somebody
// wanted to be closed. One whose name cannot be read is refused with its file.
func (d document) readNetworkPolicy(m *manifest, asJSON []byte) []error {
	var full networkingv1.NetworkPolicy
	complaints := d.unmarshal(asJSON, KindNetworkPolicy, &full)
	if len(complaints) > 0 && !onlyRulesInDoubt(asJSON) {
		// Where decoding has stopped, or what was meant, is not known: the name counts, and nothing else.
		var named metav1.PartialObjectMetadata
		if err := json.Unmarshal(asJSON, &named); err != nil {
			return complaints
		}
		full = networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: named.Namespace, Name: named.Name, UID: named.UID}}
		full.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	policy, wrong := reduceNetworkPolicy(&full)
	if isNameWrong(wrong) {
		return append(complaints, d.wrong(KindNetworkPolicy, &full, wrong)...)
	}
	if len(complaints) > 0 {
		policy.Ingress, policy.Egress = nil, nil
		policy.Wrong = withoutPlace(complaints[0])
	}
	m.complaints = append(append(m.complaints, complaints...), d.wrong(KindNetworkPolicy, &full, wrong)...)
	m.objects = append(m.objects, keyedObject{KindNetworkPolicy, policy.Key(), policy, d.place("metadata.name")})
	return nil
}

// onlyRulesInDoubt tells whether a NetworkPolicy has nothing but fields that are unknown, and these in its rules or its metadata: whom it is
// for is known then.
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

// isNameWrong tells whether it is the namespace or the name of an object that is wrong.
func isNameWrong(wrong []fieldError) bool {
	for _, w := range wrong {
		if w.field == "metadata.name" || w.field == "metadata.namespace" {
			return true
		}
	}
	return false
}

// withoutPlace gives what document.errorf has put behind file, line and object.
func withoutPlace(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
