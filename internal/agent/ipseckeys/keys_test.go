package ipseckeys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const secret = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=" // 32 bytes

// What is no file of keys is refused, with the line, and without its secret.
func TestReadKeys(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "it has 0 keys",
		"# none\n\n":                  "it has 0 keys",
		"1 aes-128-gcm":               "line 1: it has 2 words",
		"0 aes-128-gcm " + secret:     `line 1: the generation "0"`,
		"one aes-128-gcm " + secret:   `the generation "one"`,
		"1 des " + secret:             `the cipher "des"`,
		"1 aes-128-gcm " + secret[1:]: "not in base64",
		"1 aes-128-gcm AQID":          "the secret has 3 bytes",
		"1 aes-128-gcm " + strings.Repeat("A", 43) + "=":                 "needs 32 random ones",
		"1 aes-128-gcm " + secret + "\n# again\n1 aes-256-gcm " + secret: "line 3: generation 1 is there twice",
		strings.Repeat("#", fileMax+1):                                   "more than",
		"1 aes-128-gcm " + secret + "\n2 aes-128-gcm " + secret + "\n3 aes-128-gcm " + secret + "\n4 aes-128-gcm " + secret + "\n5 aes-128-gcm " + secret: "it has 5 keys",
	} {
		_, err := ReadKeys(keyFile(t, text, 0o400))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret[1:20]) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	keys, err := ReadKeys(keyFile(t, "# keys\n 3 aes-128-gcm "+secret+"\n7  aes-256-gcm "+secret+"\n", 0o600))
	if err != nil || len(keys) != 2 || keys[0].Generation != 7 || keys[0].Bits != 256 || keys[1].Bits != 128 || keys[0].Secret[31] != 32 {
		t.Errorf("%v, %v", keys, err)
	}
	if _, err := ReadKeys(keyFile(t, "1 aes-128-gcm "+secret, 0o644)); err == nil || !strings.Contains(err.Error(), "others than root") {
		t.Errorf("a file that all can read: %v", err)
	}
	if _, err := ReadKeys(t.TempDir()); err == nil {
		t.Error("a directory has keys")
	}
}

func keyFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// A key that has left the file stays for a while; one that has changed is refused.
func TestKeyring(t *testing.T) {
	key := func(g Generation, b byte) Key { return Key{g, 128, []byte{b}} }
	now := time.Unix(1000, 0)
	var r keyring
	expect := func(what string, want ...Generation) {
		t.Helper()
		got := r.generations()
		if len(got) != len(want) {
			t.Fatalf("%s: generations %v, want %v", what, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: generations %v, want %v", what, got, want)
			}
		}
	}
	update := func(file ...Key) {
		t.Helper()
		if err := r.update(file, now); err != nil {
			t.Fatal(err)
		}
	}
	update(key(1, 1))
	update(key(2, 2))
	expect("replaced", 2, 1)
	now = now.Add(retireFor / 2)
	update(key(2, 2))
	expect("replaced a while ago", 2, 1)
	if err := r.update([]Key{key(2, 3)}, now); err == nil {
		t.Error("another secret for generation 2 was taken over")
	}
	update(key(1, 1), key(2, 2))
	now = now.Add(retireFor)
	update(key(2, 2))
	expect("replaced again", 2, 1)
	now = now.Add(retireFor)
	update(key(2, 2))
	expect("replaced long ago", 2)
	for g := range Generation(10) {
		update(key(g+3, byte(g)))
	}
	if n := len(r.generations()); n > 2*generationsMax {
		t.Errorf("%d keys are kept", n)
	}
}
