//go:build kubernetes

package smoke

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// noAgentOnTheNode: without an agent, running pods continue, new ones wait, and `kubectl describe pod` says why. They
// start when the agent is back.
func noAgentOnTheNode(t *testing.T) {
	needBeeline(t)
	c := useFixtures(t)
	traffic := startTraffic(t, c)
	late := podObject("late", c.far.name)
	t.Cleanup(func() { remove(t, late) })
	t.Run("Absent", func(t *testing.T) {
		daemonSetPatch(t, fmt.Sprintf(`{"nodeSelector":{%q:%q}}`, corev1.LabelHostname, c.near.name),
			fmt.Sprintf(`{"nodeSelector":{%q:null}}`, corev1.LabelHostname))
		eventually(t, func() error {
			all, err := agentPods(c.far.name)
			if err == nil && len(all) > 0 {
				err = fmt.Errorf("agents on %s: %d", c.far.name, len(all))
			}
			return err
		})
		apply(t, late)
		eventually(t, func() error {
			output, err := kubectl("-n", namespace, "describe", "pod", late.Name)
			if err == nil && (!strings.Contains(output, "FailedCreatePodSandBox") || !strings.Contains(output, "beeline agent")) {
				err = fmt.Errorf("describe pod does not say that the agent is missing:\n%s", output)
			}
			return err
		})
		var event corev1.EventList
		mustGet(t, &event, "events", "--field-selector", "reason=FailedCreatePodSandBox,involvedObject.name="+late.Name)
		t.Logf("what a user reads: %s", event.Items[0].Message)
		traffic.waitProgress()
	})
	waitReady(t, late.Name)
	traffic.waitProgress()
	traffic.finish()
	waitAgentHasPods(t, c.far.name)
}
