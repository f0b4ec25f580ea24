//go:build kubernetes

package smoke

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// idleTime is how long the idle cluster is observed: twice the period of the agent's most frequent task, its
	// lease.
	idleTime = 20 * time.Second
	// muchCPU is a share of one core that an idle agent must not exceed on any machine. The target is a tenth of it;
	// the test logs the result.
	muchCPU = 0.05
)

// idle: agents of an idle cluster send no requests but watches, and use next to no CPU.
func idle(t *testing.T) {
	needBeeline(t)
	useFixtures(t)
	// API priority and fairness counts requests by flow schema. This one matches all requests of the agents except
	// watches.
	const schema = "beeline-agents-no-watch"
	apply(t, map[string]any{
		"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": map[string]any{"name": schema},
		"spec": map[string]any{
			"priorityLevelConfiguration": map[string]any{"name": "global-default"},
			"matchingPrecedence":         2, // before all existing schemas
			"rules": []any{map[string]any{
				"subjects": []any{map[string]any{"kind": "ServiceAccount",
					"serviceAccount": map[string]any{"namespace": agentNamespace, "name": "beeline"}}},
				"resourceRules": []any{map[string]any{
					"verbs":     []string{"get", "list", "create", "update", "patch", "delete", "deletecollection"},
					"apiGroups": []string{"*"}, "resources": []string{"*"}, "namespaces": []string{"*"}, "clusterScope": true,
				}},
				"nonResourceRules": []any{map[string]any{"verbs": []string{"*"}, "nonResourceURLs": []string{"*"}}},
			}},
		},
	})
	t.Cleanup(func() { mustKubectl(t, "delete", "flowschema", schema) })
	// Check the counter: a request as the agent must increase it.
	eventually(t, func() error {
		if _, err := kubectl("get", "nodes", "--as", agentAccount); err != nil {
			return err
		}
		return wantSame("requests are counted", fmt.Sprint(countedRequests(t, schema) > 0), "true", nil)
	})
	time.Sleep(3 * time.Second) // the agents finish the work of earlier tests

	nodes := clusterNodes(t)
	before, spent := countedRequests(t, schema), map[string]time.Duration{}
	for _, n := range nodes {
		spent[n.name] = agentCPU(t, n.name)
	}
	begin := time.Now()
	newer := make(chan struct{})
	go func() { // uses the processor, but neither the agents' time nor the API server
		_, _ = newerArchive()
		close(newer)
	}()
	time.Sleep(idleTime)
	for _, n := range nodes {
		used := agentCPU(t, n.name) - spent[n.name]
		share := float64(used) / float64(time.Since(begin))
		t.Logf("the idle agent of %s needs %.2f %% of one core (%s in %s)", n.name, 100*share, used, time.Since(begin).Round(time.Second))
		if share > muchCPU {
			t.Errorf("the idle agent of %s needs %.2f %% of one core", n.name, 100*share)
		}
	}
	<-newer
	if asked := countedRequests(t, schema) - before; asked > 0 {
		t.Errorf("the idle agents made %d requests that are no watches in %s", asked, idleTime)
	}
}

// countedRequests is how many requests of a flow schema the API server has executed.
func countedRequests(t *testing.T, schema string) (sum int) {
	t.Helper()
	for line := range strings.Lines(mustKubectl(t, "get", "--raw", "/metrics")) {
		if !strings.HasPrefix(line, "apiserver_flowcontrol_dispatched_requests_total{") || !strings.Contains(line, `flow_schema="`+schema+`"`) {
			continue
		}
		fields := strings.Fields(line)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		sum += int(n)
	}
	return sum
}

// agentCPU is the CPU time that the agent of a node has used.
func agentCPU(t *testing.T, node string) time.Duration {
	t.Helper()
	process, err := agentProcess(node)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := onNode(node).run("cat", "/proc/"+process+"/stat")
	if err != nil {
		t.Fatal(err)
	}
	// proc(5): utime and stime are fields 14 and 15, in hundredths of a second; the name before them may contain
	// spaces.
	const utime, stime, tick = 14 - 3, 15 - 3, 10 * time.Millisecond
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	var sum time.Duration
	for _, field := range []int{utime, stime} {
		n, err := strconv.Atoi(fields[field])
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
