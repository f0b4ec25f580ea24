package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

func ipPool(spec v1alpha1.IPPoolSpec) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "office"}, Spec: spec}
}

// Pods get no address that the network needs for itself.
func TestIPPoolRanges(t *testing.T) {
	for _, c := range []struct {
		name string
		spec v1alpha1.IPPoolSpec
		want string
	}{
		{"a whole subnet", v1alpha1.IPPoolSpec{Subnets: []string{"192.0.2.0/29"}, Gateways: []string{"192.0.2.3"}}, "[192.0.2.1-192.0.2.2 192.0.2.4-192.0.2.6]"},
		{"IPv6 without the anycast address of routers", v1alpha1.IPPoolSpec{Subnets: []string{"2001:db8::/125"}}, "[2001:db8::1-2001:db8::7]"},
		{"pairs", v1alpha1.IPPoolSpec{Subnets: []string{"192.0.2.2/31", "2001:db8::2/127"}}, "[192.0.2.2-192.0.2.3 2001:db8::2-2001:db8::3]"},
		{"ranges of one family, exclusions, routers", v1alpha1.IPPoolSpec{
			Subnets: []string{"2001:db8::/126", "192.0.2.0/24"}, Ranges: []string{"192.0.2.8/29", "192.0.2.40", "192.0.2.14-192.0.2.20"},
			Exclude: []string{"192.0.2.10-192.0.2.11", "192.0.2.16"}, Routes: []v1alpha1.IPPoolRoute{{To: "10.0.0.0/8", Via: "192.0.2.18"}},
		}, "[192.0.2.8-192.0.2.9 192.0.2.12-192.0.2.15 192.0.2.17-192.0.2.17 192.0.2.19-192.0.2.20 192.0.2.40-192.0.2.40 2001:db8::1-2001:db8::3]"},
		{"the ends of a subnet in a range", v1alpha1.IPPoolSpec{Subnets: []string{"192.0.2.0/24"}, Ranges: []string{"192.0.2.0-192.0.2.1", "192.0.2.254-192.0.2.255"}}, "[192.0.2.1-192.0.2.1 192.0.2.254-192.0.2.254]"},
	} {
		pool, wrong := reduceIPPool(ipPool(c.spec))
		if got := fmt.Sprint(pool.Ranges); got != c.want || len(wrong) > 0 {
			t.Errorf("%s: %s, %v, want %s", c.name, got, wrong, c.want)
		}
	}
}

// What is wrong with a pool is said with its field, and such a pool gives nothing.
func TestIPPoolErrors(t *testing.T) {
	net := []string{"192.0.2.0/24"}
	many := strings.Split(strings.Repeat("192.0.2.1 ", 257), " ")[:257]
	for want, spec := range map[string]v1alpha1.IPPoolSpec{
		"spec.subnets: missing": {},
		"spec.subnets[0]: 192.0.2.1/24 has host bits, 192.0.2.0/24 would not":                 {Subnets: []string{"192.0.2.1/24"}},
		"spec.subnets[1]: 198.51.100.0/24 is of the same family as 192.0.2.0/24, one of each": {Subnets: []string{"192.0.2.0/24", "198.51.100.0/24"}},
		"spec.subnets[0]: fe80::/64 cannot be a network of pods":                              {Subnets: []string{"fe80::/64"}},
		"spec.subnets[0]: 0.0.0.0/0 cannot be a network of pods":                              {Subnets: []string{"0.0.0.0/0"}},
		"spec.ranges[0]: 198.51.100.1 is in none of spec.subnets":                             {Subnets: net, Ranges: []string{"198.51.100.1"}},
		"spec.ranges[0]: 192.0.2.9-192.0.3.1 is in none of spec.subnets":                      {Subnets: net, Ranges: []string{"192.0.2.9-192.0.3.1"}},
		`spec.ranges[0]: "192.0.2.9-192.0.2.1" is neither an address`:                         {Subnets: net, Ranges: []string{"192.0.2.9-192.0.2.1"}},
		`spec.ranges[0]: "::ffff:192.0.2.1" is neither an address`:                            {Subnets: net, Ranges: []string{"::ffff:192.0.2.1"}},
		`spec.exclude[1]: "x" is neither an address, nor a CIDR`:                              {Subnets: net, Exclude: []string{"192.0.2.1", "x"}},
		"spec.ranges: 192.0.2.0/24 has no address for a pod":                                  {Subnets: net, Ranges: []string{"192.0.2.7"}, Exclude: []string{"192.0.2.0/28"}},
		"spec.ranges: 257 are too many, at most 256":                                          {Subnets: net, Ranges: many},
		"spec.gateways[0]: 198.51.100.1 is in none of spec.subnets":                           {Subnets: net, Gateways: []string{"198.51.100.1"}},
		"spec.gateways[1]: 192.0.2.2 is of the same family as 192.0.2.1":                      {Subnets: net, Gateways: []string{"192.0.2.1", "192.0.2.2"}},
		"spec.routes[0].via: 192.0.2.1 is not of the family of 2001:db8::/32":                 {Subnets: net, Routes: []v1alpha1.IPPoolRoute{{To: "2001:db8::/32", Via: "192.0.2.1"}}},
		"spec.routes[0].via: 198.51.100.1 is in none of spec.subnets":                         {Subnets: net, Routes: []v1alpha1.IPPoolRoute{{To: "10.0.0.0/8", Via: "198.51.100.1"}}},
		`spec.device: "tap" is none of macvlan, veth and netkit`:                              {Subnets: net, Device: "tap"},
		"spec.vlan: 4095 is not a VLAN":                                                       {Subnets: net, VLAN: 4095},
		"spec.vlan: -1 is not a VLAN":                                                         {Subnets: net, VLAN: -1},
		"spec.namespaceMax: -1 is negative":                                                   {Subnets: net, NamespaceMax: -1},
		`spec.uplink: "eth0/../x" is neither the name of a device nor an address`:             {Subnets: net, Uplink: "eth0/../x"},
		"spec.uplink: 127.0.0.1 cannot be the address of a device":                            {Subnets: net, Uplink: "127.0.0.1"},
		`spec.podSelector.matchExpressions[0].operator: "Like" is none of In, NotIn, Exists`:  {Subnets: net, PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}},
	} {
		pool, wrong := reduceIPPool(ipPool(spec))
		if len(wrong) != 1 || !strings.HasPrefix(wrong[0].Error(), want) || pool.Invalid != wrong[0].Error() || pool.Ranges != nil {
			t.Errorf("%v, invalid: %q, want %s", wrong, pool.Invalid, want)
		}
		if pool.Pods != nil && pool.Pods.Matches(NewLabels(map[string]string{"a": "b"})) {
			t.Errorf("%s: the invalid selector selects a pod", want)
		}
	}
	named := ipPool(v1alpha1.IPPoolSpec{Subnets: net})
	named.Name = "none"
	if _, wrong := reduceIPPool(named); len(wrong) != 1 {
		t.Errorf("a pool with the name none: %v", wrong)
	}
}

// The name of a claim and its address make each other, and no other name is that of a claim.
func TestClaimNames(t *testing.T) {
	for address, name := range map[string]string{
		"192.0.2.10":    "192-0-2-10",
		"2001:db8::1":   "2001-0db8-0000-0000-0000-0000-0000-0001",
		"2001:DB8:A::1": "2001-0db8-000a-0000-0000-0000-0000-0001",
	} {
		a := netip.MustParseAddr(address)
		if got := ClaimName(a); got != name {
			t.Errorf("the claim of %s has the name %s, want %s", a, got, name)
		}
		if got, err := ClaimAddress(name); got != a || err != nil {
			t.Errorf("%s is the claim of %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "office", "192-0-2", "192-0-2-010", "192.0.2.10", "2001-db8-0-0-0-0-0-1", "0000-0000-0000-0000-0000-ffff-c000-020a-1"} {
		if got, err := ClaimAddress(name); err == nil {
			t.Errorf("%q is the claim of %s", name, got)
		}
	}
}

// A manifest has an IPPool as the API server does, and the kinds of other projects with that name are not it.
func TestIPPoolManifest(t *testing.T) {
	m, errs := parse("pools.yaml", []byte(`
apiVersion: networking.beeline.dev/v1alpha1
kind: IPPool
metadata: {name: office}
spec: {subnets: [192.0.2.0/24], ranges: [192.0.2.10-192.0.2.99], gateways: [192.0.2.1], uplink: eth1, device: macvlan, default: true}
---
apiVersion: crd.example.org/v1
kind: IPPool
metadata: {name: theirs}
spec: {cidr: 10.0.0.0/8}
`))
	if len(errs) > 0 || len(m.objects) != 1 {
		t.Fatalf("%v, %+v", errs, m)
	}
	got := m.objects[0].object.(*IPPool)
	if got.Name != "office" || got.Device != DeviceMacvlan || got.Uplink != "eth1" || !got.Default || !got.Probe || len(got.Ranges) != 1 {
		t.Errorf("%+v", got)
	}
	_, errs = parse("pools.yaml", []byte("apiVersion: networking.beeline.dev/v1alpha1\nkind: IPPool\nmetadata: {name: office}\nspec:\n  subnet: 192.0.2.0/24\n"))
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "pools.yaml:5: ") {
		t.Errorf("with an unknown field: %v", cmp.Diff("", fmt.Sprint(errs)))
	}
}
