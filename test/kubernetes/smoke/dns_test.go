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
	c := theCast(t)
	service := serviceObject("named", "name", c.b.pod)
	applyForTest(t, service)
	var made, dns corev1.Service
	mustGet(t, &made, "service", service.Name)
	mustGet(t, &dns, "service", "kube-dns", "-n", "kube-system")
	for _, client := range []actor{c.a, c.remote} {
		for _, protocol := range []string{"udp", "tcp"} {
			for _, server := range []string{"", dns.Spec.ClusterIP} {
				eventually(t, func() error { // the DNS server learns of Services a moment later
					said, err := client.try("resolve", "named", "-protocol="+protocol, "-server="+server)
					return wantSame("addresses of named over "+protocol, strings.TrimSpace(said), made.Spec.ClusterIP, err)
				})
			}
		}
		if said, err := client.try("resolve", "nobody."+namespace+".svc.cluster.local."); err == nil {
			t.Errorf("%s: a Service that does not exist has the address %s", client.pod, said)
		}
	}
}

// headlessService: its name has the addresses of its pods, and through them the pods answer.
func headlessService(t *testing.T) {
	c := theCast(t)
	service := serviceObject("headless", castLabel, castMember)
	service.Spec.ClusterIP = corev1.ClusterIPNone
	applyForTest(t, service)
	want := []string{c.a.address, c.b.address, c.remote.address}
	slices.Sort(want)
	for _, client := range []actor{c.a, c.remote} {
		eventually(t, func() error {
			said, err := client.try("resolve", "headless")
			return wantSame("addresses of headless", strings.TrimSpace(said), strings.Join(want, " "), err)
		})
		client.want(t, "ask", "headless:8080", "-count=3")
	}
}
