//go:build kubernetes

package smoke

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// clusterDNS: names of Services resolve through the ClusterIP of the DNS server, over UDP and TCP, from both nodes.
func clusterDNS(t *testing.T) {
	c := useFixtures(t)
	service := serviceObject("named", "name", c.b.pod)
	applyForTest(t, service)
	var made, dns corev1.Service
	mustGet(t, &made, "service", service.Name)
	mustGet(t, &dns, "service", "kube-dns", "-n", "kube-system")
	for _, client := range []testPod{c.a, c.remote} {
		for _, protocol := range []string{"udp", "tcp"} {
			for _, server := range []string{"", dns.Spec.ClusterIP} {
				eventually(t, func() error { // the DNS server gets new Services a moment later
					output, err := client.try("resolve", "named", "-protocol="+protocol, "-server="+server)
					return wantSame("addresses of named over "+protocol, strings.TrimSpace(output), made.Spec.ClusterIP, err)
				})
			}
		}
		if output, err := client.try("resolve", "missing."+namespace+".svc.cluster.local."); err == nil {
			t.Errorf("%s: a Service that does not exist has the address %s", client.pod, output)
		}
	}
}

// headlessService: its name resolves to the addresses of its pods, and the pods reply there.
func headlessService(t *testing.T) {
	c := useFixtures(t)
	service := serviceObject("headless", fixtureLabel, fixtureValue)
	service.Spec.ClusterIP = corev1.ClusterIPNone
	applyForTest(t, service)
	want := []string{c.a.address, c.b.address, c.remote.address}
	slices.Sort(want)
	for _, client := range []testPod{c.a, c.remote} {
		eventually(t, func() error {
			output, err := client.try("resolve", "headless")
			return wantSame("addresses of headless", strings.TrimSpace(output), strings.Join(want, " "), err)
		})
		client.want(t, "ask", "headless:8080", "-count=3")
	}
}
