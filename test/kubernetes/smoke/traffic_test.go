//go:build kubernetes

package smoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// traffic is a load by pods on both nodes: streams, a thousand requests a second over TCP and UDP, and new
// connections, to local and remote pods and through a Service. No loss is allowed.
type traffic struct {
	t       *testing.T
	talkers []runner
}

// loadReport is the report of one load, see test/kubernetes/probe.
type loadReport struct {
	Name               string
	Done               int64
	SlowestNanoseconds time.Duration
	Errors             []string
}

// startTraffic creates the clients and waits until they send.
func startTraffic(t *testing.T, c fixtures) *traffic {
	t.Helper()
	// The backends get no other traffic: directAndService covers direct and Service traffic to one pod.
	servedNear, servedFar := withTurn(podObject("served-near", c.near.name)), withTurn(podObject("served-far", c.far.name))
	near, far := serviceObject("traffic-near", "name", servedNear.Name), serviceObject("traffic-far", "name", servedFar.Name)
	applyForTest(t, servedNear, servedFar, near, far)
	waitReady(t, servedNear.Name, servedFar.Name)
	viaNear, viaFar := hostPort(serviceAddress(t, near.Name), 7), hostPort(serviceAddress(t, far.Name), 7)
	talker := func(name string, on node, to ...string) *corev1.Pod {
		pod := withTurn(podObject(name, on.name, append([]string{"traffic"}, to...)...))
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.TerminationGracePeriodSeconds = ptr[int64](3)
		return pod
	}
	applyForTest(t,
		talker("talker-near", c.near, c.b.echo(), c.remote.echo(), viaFar),
		talker("talker-far", c.far, c.a.echo(), viaNear))
	waitReady(t, "talker-near", "talker-far")
	traffic := &traffic{t, []runner{inPod("talker-near"), inPod("talker-far")}}
	traffic.waitProgress()
	return traffic
}

// waitProgress waits until every load has made progress.
func (tr *traffic) waitProgress() {
	tr.t.Helper()
	before, err := tr.reports("now")
	if err != nil {
		tr.t.Fatal(err)
	}
	eventually(tr.t, func() error {
		now, err := tr.reports("now")
		if err != nil {
			return err
		}
		var standing []error
		for i := range now {
			if now[i].Done <= before[i].Done {
				standing = append(standing, fmt.Errorf("%s: stands at %d: %v", now[i].Name, now[i].Done, now[i].Errors))
			}
		}
		return errors.Join(standing...)
	})
}

// finish ends the traffic and fails the test for every loss.
func (tr *traffic) finish() {
	tr.t.Helper()
	reports, err := tr.reports("end")
	if err != nil {
		tr.t.Fatal(err)
	}
	for _, r := range reports {
		tr.t.Logf("%s: %d, the slowest in %s", r.Name, r.Done, r.SlowestNanoseconds.Round(10*time.Microsecond))
		for _, e := range r.Errors {
			tr.t.Errorf("%s: %s", r.Name, e)
		}
		if r.Done == 0 {
			tr.t.Errorf("%s: nothing was done", r.Name)
		}
	}
}

// reports returns the reports of all clients, "now" or at the "end".
func (tr *traffic) reports(when string) (all []loadReport, err error) {
	for _, talker := range tr.talkers {
		output, failed := talker.try("report", when)
		var reports []loadReport
		if failed == nil {
			failed = json.Unmarshal([]byte(output), &reports)
		}
		for i := range reports {
			reports[i].Name = talker.name + ": " + reports[i].Name
		}
		all, err = append(all, reports...), errors.Join(err, failed)
	}
	return all, err
}
