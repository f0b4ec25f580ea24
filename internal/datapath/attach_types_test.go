package datapath

import "testing"

// Every program at sockets is attached as the object says.
func TestSocketAttachTypes(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range socketProgramNames {
		if p := spec.Programs[name]; p == nil || p.AttachType != socketAttachTypes[name] {
			t.Errorf("%s is not a program at sockets", name)
		}
	}
}
