package attach

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Every program at sockets has the attach type of the object.
func TestSocketAttachTypes(t *testing.T) {
	spec, err := bpf.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range bpf.SocketProgramNames {
		if p := spec.Programs[name]; p == nil || p.AttachType != socketAttachTypes[name] {
			t.Errorf("%s is not a program at sockets", name)
		}
	}
}
