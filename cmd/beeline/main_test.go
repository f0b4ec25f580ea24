package main

import "testing"

func TestVersion(t *testing.T) {
	if code, stdout, _ := beeline(t, "--version"); code != 0 || stdout != "beeline "+version+"\n" {
		t.Errorf("exit code %d, printed %q", code, stdout)
	}
}
