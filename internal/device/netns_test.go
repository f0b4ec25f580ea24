package device

import "testing"

func TestNamespaceMount(t *testing.T) {
	tests := map[string]string{
		`655 29 0:4 net:[4026532257] /run/netns/pod\040one rw shared:327 - nsfs nsfs rw`: "/run/netns/pod one",
		`655 29 0:4 mnt:[4026532257] /run/snap/ns/x rw - nsfs nsfs rw`:                   "",
		`29 1 254:1 / / rw,relatime shared:1 - ext4 /dev/root rw`:                        "",
		`29 1`: "",
		``:     "",
	}
	for line, want := range tests {
		if path, ok := namespaceMount(line); path != want || ok != (want != "") {
			t.Errorf("%q: got %q, want %q", line, path, want)
		}
	}
}
