package workload

import "github.com/beeline-cni/beeline/lab/result"

// Outside is a workload whose server is no pod: it runs on the other node itself. Where that is, the Server of a Request says:
// what runs is the workload itself.
type Outside struct{ Workload }

// Info names the workload by its target.
func (o Outside) Info() result.Workload {
	i := o.Workload.Info()
	i.Of, i.Target = i.Name, result.ToNode
	i.Name += "_" + string(result.ToNode)
	i.Title += " to the other node"
	i.Description += " To a server on the other node itself, whose address is no pod's."
	return i
}
