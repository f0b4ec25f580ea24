package kernel

import (
	"testing"
)

func TestIsRealtime(t *testing.T) {
	for _, c := range []struct {
		flag, version string
		want          bool
	}{
		{"", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1 (2025-09-20)", false},
		{"", "#1 SMP Debian 6.1.99-1", false},
		{"", "#1 SMP PREEMPT Debian 5.10.1-1", false},
		{"0\n", "#1 SMP PREEMPT_DYNAMIC", false},
		{"", "#1 SMP PREEMPT_RT Debian 6.12.48-1 (2025-09-20)", true},
		{"", "#1 SMP PREEMPT RT Debian 5.10.1-1", true}, // up to 5.14
		{"1\n", "#1 SMP", true},
	} {
		if got := isRealtime(c.flag, c.version); got != c.want {
			t.Errorf("%q with %q: %t, want %t", c.version, c.flag, got, c.want)
		}
	}
	if err := notRealtime(); err != nil {
		t.Errorf("this kernel: %v", err)
	}
}
