package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// PortError says that one port of one Service is not as it should be.
type PortError struct {
	Port service.PortName
	Err  error
}

func (e *PortError) Error() string {
	name := e.Port.Port
	if name == "" {
		name = fmt.Sprint(e.Port.Number)
	}
	return fmt.Sprintf("Service %s, port %s: %v", e.Port.Service, name, e.Err)
}

// Unwrap gives the cause.
func (e *PortError) Unwrap() error { return e.Err }

// MorePortsError says that these ports are not as they should be either, for reasons that are not told.
type MorePortsError struct{ Ports []service.PortName }

func (e *MorePortsError) Error() string {
	return fmt.Sprintf("and %d more ports of Services", len(e.Ports))
}

// ConflictError says that a frontend belongs to another port of a Service.
type ConflictError struct {
	Frontend service.Frontend
	Holder   service.PortName
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s is in use by Service %s", describe(e.Frontend), e.Holder.Service)
}

// describe writes a frontend for people.
func describe(f service.Frontend) string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Address, f.Port), f.Protocol)
}

// pendingErrors are the ports that could not be set, in the order in which that was found.
type pendingErrors struct {
	order []service.PortName
	of    map[service.PortName]pendingError
}

type pendingError struct {
	port service.Port
	err  error
}

func (t *pendingErrors) clear() { *t = pendingErrors{} }

func (t *pendingErrors) note(p service.Port, err error) {
	if t.of == nil {
		t.of = map[service.PortName]pendingError{}
	}
	if _, ok := t.of[p.Name]; !ok {
		t.order = append(t.order, p.Name)
	}
	t.of[p.Name] = pendingError{p, err}
}

func (t *pendingErrors) solved(name service.PortName) {
	if _, ok := t.of[name]; ok {
		delete(t.of, name)
		t.order = slices.DeleteFunc(t.order, func(n service.PortName) bool { return n == name })
	}
}

// errorsReported bounds an error that may concern every Service.
const errorsReported = 10

func (t *pendingErrors) err() error {
	var all []error
	for i, name := range t.order {
		if i == errorsReported {
			all = append(all, &MorePortsError{slices.Clone(t.order[i:])})
			break
		}
		all = append(all, &PortError{name, t.of[name].err})
	}
	return errors.Join(all...)
}

// retry applies failed ports again if there may be space now. Once a map proves full, ports that need space in it wait
// for the next call.
func (s *Services) retry(now time.Time) (changed int) {
	if !s.freed || len(s.pendingErrors.order) == 0 {
		return 0
	}
	s.freed = false
	full := map[string]bool{}
	for _, name := range slices.Clone(s.pendingErrors.order) {
		t := s.pendingErrors.of[name]
		var f *table.FullError
		if errors.As(t.err, &f) && full[f.Map] {
			continue
		}
		n, err := s.setTogether([]service.Port{t.port}, now)
		changed += n
		if err != nil {
			s.retain(t.port)
			s.pendingErrors.note(t.port, err)
			if errors.As(err, &f) {
				full[f.Map] = true
			}
		}
	}
	return changed
}
