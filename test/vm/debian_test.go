package main

import (
	"errors"
	"testing"
)

func TestNewestOf(t *testing.T) {
	const found = "linux-image-6.18.9+deb13-cloud-amd64 - Linux 6.18.9 (signed)\nlinux-image-6.18.15+deb13-cloud-amd64 - Linux 6.18.15 (signed)\n" +
		"linux-image-6.18.12+deb13-cloud-amd64 - Linux 6.18.12 (signed)\n"
	if name, err := newestOf(found); err != nil || name != "linux-image-6.18.15+deb13-cloud-amd64" {
		t.Errorf("%s: %v", name, err)
	}
	if name, err := newestOf("\n"); !errors.Is(err, errNotFound) {
		t.Errorf("of nothing: %q: %v", name, err)
	}
}
