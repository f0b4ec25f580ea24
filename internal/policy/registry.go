package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// content is a checksum of what a number stands for.
type content [sha256.Size]byte

// digest makes a content of parts. The length precedes each part, so that different lists of parts differ.
type digest struct {
	sum    hash.Hash
	length [8]byte
}

func newDigest(kind string) *digest {
	d := &digest{sum: sha256.New()}
	d.text(kind)
	return d
}

func (d *digest) text(s string) { d.bytes([]byte(s)) }

func (d *digest) bytes(b []byte) {
	d.number(uint64(len(b)))
	d.sum.Write(b)
}

func (d *digest) number(n uint64) {
	binary.BigEndian.PutUint64(d.length[:], n)
	d.sum.Write(d.length[:])
}

func (d *digest) key(k cluster.Key) {
	d.text(k.Namespace)
	d.text(k.Name)
}

func (d *digest) content() (c content) {
	d.sum.Sum(c[:0])
	return c
}

// numbered is an object with a number that derives from its content.
type numbered[T any] struct {
	value   T
	content content
	// number is 0 until the registry assigns one.
	number uint32
	used   uint64 // the last pass that used it
}

// registry holds one object for each content and assigns numbers: the first bytes of the checksum, or the next of a series that
// starts there if another content has that number. Among new objects the order of contents decides a collision; an older object
// keeps its number. So two agents, or a restarted one, assign the same numbers as long as nothing collides.
type registry[T any] struct {
	// number returns the nth number of a content, from 0. The result 0 is skipped.
	number  func(c content, nth uint32) uint32
	objects map[content]*numbered[T]
	taken   map[uint32]*numbered[T]
	waiting []*numbered[T] // have no number yet
	pass    uint64
}

func newRegistry[T any](number func(content, uint32) uint32) *registry[T] {
	return &registry[T]{number: number, objects: map[content]*numbered[T]{}, taken: map[uint32]*numbered[T]{}}
}

// begin starts a pass.
func (r *registry[T]) begin() { r.pass++ }

// get returns the object with a content, makes it if necessary, and marks it as used.
func (r *registry[T]) get(c content, value func() T) *numbered[T] {
	o := r.objects[c]
	if o == nil {
		o = &numbered[T]{value: value(), content: c}
		r.objects[c] = o
		r.waiting = append(r.waiting, o)
	}
	o.used = r.pass
	return o
}

// use marks an object of a previous pass as used and returns the one to use: the registry may have dropped it and made another
// with the same content.
func (r *registry[T]) use(o *numbered[T]) *numbered[T] {
	if o.used == r.pass {
		return o
	}
	return r.get(o.content, func() T { return o.value })
}

// assign gives numbers to the objects that have none.
func (r *registry[T]) assign() {
	slices.SortFunc(r.waiting, func(a, b *numbered[T]) int { return bytes.Compare(a.content[:], b.content[:]) })
	for _, o := range r.waiting {
		for nth := uint32(0); ; nth++ {
			n := r.number(o.content, nth)
			if n != 0 && r.taken[n] == nil {
				o.number, r.taken[n] = n, o
				break
			}
		}
	}
	clear(r.waiting)
	r.waiting = r.waiting[:0]
}

// sweep drops what neither this pass nor the previous one used: until then the kernel may still have the number.
func (r *registry[T]) sweep() {
	for c, o := range r.objects {
		if o.used+1 < r.pass {
			delete(r.objects, c)
			delete(r.taken, o.number)
		}
	}
}

// hashed returns the nth number of a content: its first 32 bits, then those of further checksums.
func hashed(c content, nth uint32) uint32 {
	if nth == 0 {
		return binary.BigEndian.Uint32(c[:])
	}
	var b [len(c) + 4]byte
	copy(b[:], c[:])
	binary.BigEndian.PutUint32(b[len(c):], nth)
	sum := sha256.Sum256(b[:])
	return binary.BigEndian.Uint32(sum[:])
}
