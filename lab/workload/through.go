package workload

import (
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// Through is a workload whose clients connect to the ClusterIP of a Service. Where that is, the Server of a Request
// says: what runs is the workload itself.
type Through struct {
	Workload
	// Services is how many there are at the time.
	Services int
}

// Info names the workload by its target and the number of Services.
func (t Through) Info() result.Workload {
	i := t.Workload.Info()
	i.Of, i.Target, i.Services = i.Name, result.ToClusterIP, t.Services
	i.Name = strings.Join([]string{i.Of, string(i.Target), fmt.Sprint(t.Services)}, "_")
	among := "the only Service"
	if t.Services > 1 {
		among = fmt.Sprintf("one of %d Services", t.Services)
	}
	i.Title += " to a ClusterIP"
	i.Description += " To the ClusterIP of " + among + "."
	if t.Services > 1 {
		i.Title += fmt.Sprintf(", %d Services", t.Services)
	}
	return i
}
