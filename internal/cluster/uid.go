package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// UID distinguishes objects that had the same name at different times. It has 16 bytes instead of 36 characters,
// because a large cluster has 150,000 of them. The zero UID means none.
type UID [16]byte

// NewUID reads a UID. UUIDs, as of API server and kubelet, map to themselves; other texts map to their checksums.
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
