// Package capture shows tests the frames of devices. Wire looks for plaintext of pods on a wire whose nodes encrypt.
package capture

import (
	"github.com/beeline-cni/beeline/lab/capture"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Start is the lab's Frames for tests that send more than a capture can read: it does not say how many frames were missed.
func Start(netns testbed.Netns, device string, see func(frame []byte, sent bool)) (stop func(), err error) {
	end, err := capture.Frames(netns, device, see)
	if err != nil {
		return nil, err
	}
	return func() { _ = end() }, nil
}
