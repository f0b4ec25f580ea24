package main

import (
	"strings"
	"testing"
)

func TestTranslate(t *testing.T) {
	const passed = "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.01s)\n\x16PASS\n"
	for _, test := range []struct {
		name, said string
		want       []string
		done       bool
	}{
		{"passed", "@vm begin a\n" + passed + "\n@vm end a\n@vm done\n",
			[]string{`"Action":"pass","Package":"a on Linux 6.1","Test":"TestA","Elapsed":0.01}`, `"Action":"pass","Package":"a on Linux 6.1","Elapsed":`}, true},
		{"failed after all tests passed", "@vm begin a\n" + passed + "\n\x16FAIL\n\n@vm end a\n@vm done\n",
			[]string{`"Action":"fail","Package":"a on Linux 6.1","Elapsed":`}, true},
		{"crashed", "@vm begin a\n\x16=== RUN   TestA\npanic: x\n\n\x16FAIL\n\n@vm end a\n@vm done\n",
			[]string{`"Action":"fail","Package":"a on Linux 6.1","Elapsed":`}, true},
		{"machine died in a test", "@vm begin a\n\x16=== RUN   TestA\n",
			[]string{`"Action":"fail","Package":"a on Linux 6.1","Elapsed":`}, false},
		{"machine died before the tests", "", nil, false},
		{"machine died between packages", "@vm begin a\n" + passed + "\n@vm end a\n", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var events strings.Builder
			done, err := translate(strings.NewReader(test.said), "Linux 6.1", &events)
			if err != nil {
				t.Fatal(err)
			}
			if done != test.done {
				t.Errorf("done is %v, want %v", done, test.done)
			}
			for _, want := range test.want {
				if !strings.Contains(events.String(), want) {
					t.Errorf("no %s in:\n%s", want, events.String())
				}
			}
		})
	}
}

func TestSelectKernels(t *testing.T) {
	if all, err := selectKernels(""); err != nil || len(all) != len(kernels) {
		t.Errorf("without a version: %d kernels, error %v; want all", len(all), err)
	}
	if one, err := selectKernels("6.1"); err != nil || len(one) != 1 || one[0].version != "6.1" {
		t.Errorf("6.1: %v, error %v", one, err)
	}
	if _, err := selectKernels("2.6"); err == nil || !strings.Contains(err.Error(), "6.12") {
		t.Errorf("2.6: error %v, want one that lists what there is", err)
	}
}
