package apiserver

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// The installed ClusterRole has exactly the permissions that this package needs.
func TestClusterRoleIsWhatIsNeeded(t *testing.T) {
	manifest, err := os.ReadFile("../../../deploy/beeline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	granted := rights{}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var role rbacv1.ClusterRole
		if err := documents.Decode(&role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			if len(rule.NonResourceURLs)+len(rule.ResourceNames) > 0 {
				t.Errorf("a rule is not by resource: %+v", rule)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[[2]string{group, resource}] = append(granted[[2]string{group, resource}], rule.Verbs...)
				}
			}
		}
	}
	needed := rights{}
	for _, rule := range Rules() {
		needed[[2]string{rule.Group, rule.Resource}] = rule.Verbs
	}
	granted.without(needed, func(right string) { t.Errorf("granted and not needed: %s", right) })
	needed.without(granted, func(right string) { t.Errorf("needed and not granted: %s", right) })
}

// rights are verbs by group and resource.
type rights map[[2]string][]string

// without reports the permissions that r has and others have not.
func (r rights) without(others rights, report func(right string)) {
	for on, verbs := range r {
		for _, verb := range verbs {
			if !slices.Contains(others[on], verb) {
				report(verb + " " + on[1] + " of group " + `"` + on[0] + `"`)
			}
		}
	}
}
