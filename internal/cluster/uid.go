package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// UID is what makes an object another one than those of its name before: 16 bytes where the text is 36 characters, for there are 150,000 of
// them in a large cluster. The zero UID is that of an object that nobody has given one.
type UID [16]byte

// NewUID makes one of what an object says. UUIDs, which an API server and a kubelet give, are themselves; other texts are their checksums.
func NewUID(text string) (uid UID) {
	if text == "" {
		return uid
	}
	digits := strings.ReplaceAll(text, "-", "")
	if len(digits) == hex.EncodedLen(len(uid)) {
		if _, err := hex.Decode(uid[:], []byte(digits)); err == nil {
			return uid
		}
	}
	sum := sha256.Sum256([]byte(text))
	return UID(sum[:len(uid)])
}
