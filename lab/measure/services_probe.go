package measure

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// probed are the numbers of the Services that are asked, of so many, from the first to the last.
func probed(total int) []int {
	var list []int
	for i := range probes {
		list = append(list, i*(total-1)/(probes-1))
	}
	return sorted(list)
}

// fillProbed are the objects of so many Services, of which the probed ones have one backend that answers.
func fillProbed(total, backends int, nodes []*testbed.Node, answers services.Backend) []runtime.Object {
	var objects []runtime.Object
	next := probed(total)
	for i := range total {
		s := services.Filler(i, backends, nodes)
		if len(next) > 0 && next[0] == i {
			s.Backends, next = []services.Backend{answers}, next[1:]
		}
		objects = append(objects, s.Objects()...)
	}
	return objects
}
