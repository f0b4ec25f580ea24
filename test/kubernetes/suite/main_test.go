package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

func TestChoose(t *testing.T) {
	for asked, want := range map[string]string{
		"": "flat routed kube-proxy", "routed,flat": "routed flat", "nftables": "nftables",
	} {
		got, err := choose(rounds("logs"), asked)
		var names []string
		for _, r := range got {
			names = append(names, r.name)
		}
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("%q: %q, want %q (%v)", asked, names, want, err)
		}
	}
	if _, err := choose(rounds("logs"), "flat,round"); err == nil || !strings.Contains(err.Error(), `"round"`) {
		t.Errorf("an unknown round: %v", err)
	}
}

func TestWithFamily(t *testing.T) {
	all := rounds("logs")
	for family, more := range map[string]int{plan.FamilyIPv4: 0, plan.FamilyIPv6: 0, plan.FamilyDual: 1} {
		got, err := withFamily(all, family, "logs")
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got {
			if r.name != all[i].name+"-"+family || r.options.Family != family {
				t.Errorf("round %s of family %q, want %s-%s", r.name, r.options.Family, all[i].name, family)
			}
			want := len(all[i].tests)
			if all[i].name == everything {
				want += more
			}
			if len(r.tests) != want {
				t.Errorf("round %s runs %v, want %d commands", r.name, r.tests, want)
			}
		}
		dualstack := slices.ContainsFunc(got[0].tests, func(c command) bool { return slices.Contains(c, "-tests=dualstack") })
		if dualstack != (more > 0) {
			t.Errorf("family %s: upstream's tests of two families run: %t", family, dualstack)
		}
	}
	if len(all[0].tests) != len(rounds("logs")[0].tests) || all[0].options.Family != "" {
		t.Error("withFamily changed its argument")
	}
	if _, err := withFamily(all, "ipx", "logs"); err == nil || !strings.Contains(err.Error(), `"ipx"`) {
		t.Errorf("an unknown family: %v", err)
	}
}
