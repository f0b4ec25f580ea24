package ipseckeys

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Announcement is what a node tells the others: they need both to derive its keys. It is no secret.
type Announcement struct {
	// Epoch is random, in hexadecimal: 2·epochBytes digits.
	Epoch string
	// Generations are those of the keys that the node decrypts with, the highest first.
	Generations []Generation
}

const epochBytes = 16

func (a Announcement) String() string {
	var generations []string
	for _, g := range a.Generations {
		generations = append(generations, fmt.Sprint(g))
	}
	return a.Epoch + " " + strings.Join(generations, ",")
}

// ParseAnnouncement is the reverse of String. Another node's agent has written the text.
func ParseAnnouncement(text string) (a Announcement, err error) {
	epoch, generations, _ := strings.Cut(text, " ")
	if b, err := hex.DecodeString(epoch); err != nil || len(b) != epochBytes || epoch != strings.ToLower(epoch) {
		return a, fmt.Errorf("%.50q is no epoch of %d hexadecimal digits", epoch, 2*epochBytes)
	}
	a.Epoch = epoch
	all := strings.Split(generations, ",")
	if len(all) > 2*generationsMax {
		return a, fmt.Errorf("it has %d generations of keys", len(all))
	}
	for _, text := range all {
		g, err := strconv.ParseUint(text, 10, 32)
		if err != nil || g == 0 {
			return a, fmt.Errorf("%.20q is no generation of keys", text)
		}
		a.Generations = append(a.Generations, Generation(g))
	}
	slices.Sort(a.Generations)
	slices.Reverse(a.Generations)
	return a, nil
}
