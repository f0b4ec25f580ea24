package network

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"

	"github.com/beeline-cni/beeline/lab/capture"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Wire is what two nodes' uplinks sent while their pods exchanged a marked payload.
type Wire struct {
	// Payload is how many bytes each of the pods sent.
	Payload int
	// Frames is how many frames there were, Marked how many of them had the mark, and Inside how many an address of a pod in
	// their outer header.
	Frames, Marked, Inside int
	// Encrypted are the bytes of encrypted frames.
	Encrypted int
}

// markedBytes are a payload of many packets.
const markedBytes = 64 << 10

// mark is how many random bytes the payload repeats: any piece of twice as many contains them whole.
const mark = 16

// VerifyWire sends a marked payload from a pod to one of another node and back, over every address family, and captures
// what the nodes' uplinks send meanwhile. Of a network that encrypts, it returns an error if a frame has the mark or a
// pod's address, or too few frames are encrypted. Of another network, it returns an error if no frame has the mark: then
// the capture would show nothing of a network that only seems to encrypt.
func VerifyWire(ctx context.Context, n Network, lab *testbed.Lab, from, to *testbed.Pod) (w Wire, err error) {
	marker := make([]byte, mark)
	_, _ = rand.Read(marker) // it never fails
	payload := bytes.Repeat(marker, markedBytes/mark)
	wanted := capture.For{Marker: marker}
	for _, node := range lab.Nodes() {
		if node.Name == from.Node || node.Name == to.Node {
			wanted.Ranges = append(wanted.Ranges, node.PodCIDRs...)
		}
	}
	e, flow := EncryptionOf(n)
	var captures []func() (capture.Seen, error)
	stop := func() (err error) {
		for _, end := range captures {
			seen, failed := end()
			err = errors.Join(err, failed)
			w.Frames, w.Marked, w.Inside = w.Frames+seen.Frames, w.Marked+seen.Marked, w.Inside+seen.Inside
			w.Encrypted += seen.Bytes[flow]
		}
		return err
	}
	for _, node := range lab.Nodes() {
		if node.Name != from.Node && node.Name != to.Node {
			continue
		}
		end, err := capture.Start(node.Netns, testbed.Uplink, wanted)
		if err != nil {
			return w, errors.Join(fmt.Errorf("node %s: %w", node.Name, err), stop())
		}
		captures = append(captures, end)
	}
	for _, address := range to.Addresses {
		at := netip.AddrPortFrom(address, verifyPort)
		if _, failed := exchange(ctx, from.Netns, at, to.Netns, at, payload); failed != nil {
			err = errors.Join(err, fmt.Errorf("from %s to %s: %w", from.Name, at, failed))
		}
		w.Payload += len(payload)
	}
	if err := errors.Join(err, stop()); err != nil {
		return w, fmt.Errorf("%s: capture on the wire: %w", n.Name(), err)
	}
	return w, w.check(n.Name(), e)
}

// check says what is not as it has to be.
func (w Wire) check(name string, e Encryption) error {
	sent := 2 * w.Payload // there and back
	switch {
	case e == "" && w.Marked == 0:
		return fmt.Errorf("%s does not encrypt, and none of %d frames on the wire has the mark: the capture shows nothing", name, w.Frames)
	case e == "":
		return nil
	case w.Marked > 0 || w.Inside > 0:
		return fmt.Errorf("%s: of %d frames on the wire, %d have the mark of a pod's payload and %d a pod's address, in plaintext", name, w.Frames, w.Marked, w.Inside)
	case w.Encrypted < sent:
		return fmt.Errorf("%s: %d bytes of frames on the wire are encrypted with %s, fewer than %d of the payload", name, w.Encrypted, e, sent)
	}
	return nil
}
