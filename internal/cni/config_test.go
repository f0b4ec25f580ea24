package cni

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

func TestParseConfigAccepts(t *testing.T) {
	tests := map[string]string{
		"minimal":            ``,
		"socket":             `,"agentSocket":"/run/x.sock"`,
		"runtime's keys":     `,"cniVersions":["1.0.0"],"args":{"cni":{"labels":[]}},"capabilities":{"portMappings":true},"runtimeConfig":{"portMappings":[{"hostPort":80}]},"dns":{}`,
		"device":             `,"device":"veth"`,
		"ipPool":             `,"ipPool":"office,lab"`,
		"routing":            `,"routing":"kernel"`,
		"empty routing":      `,"routing":""`,
		"list's keys":        `,"disableCheck":true,"disableGC":false`,
		"prevResult":         `,"prevResult":{"cniVersion":"1.1.0"}`,
		"garbage collection": `,"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"}]`,
		"later protocol":     `,"cni.dev/new-thing":{"a":1}`,
		"empty ipam":         `,"ipam":{}`,
		"no ipMasq":          `,"ipMasq":false`,
		"nulls":              `,"args":null,"prevResult":null,"dns":null,"runtimeConfig":null,"capabilities":null,"cni.dev/valid-attachments":null,"ipam":null`,
	}
	for name, more := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := parseConfig(conf(more))
			if err != nil {
				t.Fatal(err)
			}
			if c.Name != "pods" || c.CNIVersion != "1.1.0" {
				t.Errorf("got %+v", c)
			}
		})
	}
	if c, _ := parseConfig(conf("")); c.AgentSocket != agentapi.DefaultSocket {
		t.Errorf("default socket is %q", c.AgentSocket)
	}
}

func TestParseConfigRejects(t *testing.T) {
	tests := map[string]struct {
		more, says string
	}{
		"unknown":             {`,"bridge":"cni0"`, `unknown field "bridge"`},
		"misspelt":            {`,"agentsocket":"/x"`, `unknown field "agentsocket", did you mean "agentSocket"?`},
		"two at once":         {`,"a":1,"mtu":1500`, `unknown field "a"; unknown field "mtu"`},
		"socket's type":       {`,"agentSocket":5`, `field "agentSocket": got number, want string`},
		"relative socket":     {`,"agentSocket":"run/x.sock"`, `field "agentSocket": "run/x.sock" is not an absolute path`},
		"empty socket":        {`,"agentSocket":""`, `field "agentSocket": "" is not an absolute path`},
		"long socket":         {fmt.Sprintf(`,"agentSocket":"/%s"`, strings.Repeat("a", 107)), `field "agentSocket": path has 108 bytes, the kernel allows 107`},
		"ipam":                {`,"ipam":{"type":"host-local"}`, `field "ipam": the agent allocates addresses`},
		"ipam's type":         {`,"ipam":"host-local"`, `field "ipam"`},
		"ipMasq":              {`,"ipMasq":true`, `field "ipMasq": the agent's flag --masquerade sets masquerading`},
		"dns":                 {`,"dns":{"nameservers":"10.0.0.1"}`, `field "dns.nameservers": got string, want array`},
		"runtimeConfig":       {`,"runtimeConfig":[]`, `field "runtimeConfig": got array`},
		"capabilities":        {`,"capabilities":{"dns":"yes"}`, `field "capabilities": got string, want bool`},
		"prevResult":          {`,"prevResult":"x"`, `field "prevResult": got string`},
		"valid attachments":   {`,"cni.dev/valid-attachments":{}`, `field "cni.dev/valid-attachments": got object`},
		"device":              {`,"device":"tap"`, `field "device": "tap" is not one of ["veth" "netkit" "macvlan"]`},
		"routing":             {`,"routing":"stack"`, `field "routing": "stack" is neither "ebpf" nor "kernel"`},
		"routing's type":      {`,"routing":true`, `field "routing": got bool, want string`},
		"disableCheck's type": {`,"disableCheck":"no"`, `field "disableCheck": got string, want bool`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig(conf(test.more))
			if codeOf(t, err) != types.ErrInvalidNetworkConfig || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v\nwant %s", err, test.says)
			}
		})
	}
	if _, err := parseConfig([]byte(`{"name":`)); codeOf(t, err) != types.ErrDecodingFailure {
		t.Errorf("cut off: got %v", err)
	}
}

func TestValidAttachments(t *testing.T) {
	tests := []struct {
		more string
		has  bool
		want []types.GCAttachment
	}{
		{``, false, nil},
		{`,"cni.dev/valid-attachments":null`, true, nil},
		{`,"cni.dev/valid-attachments":[]`, true, []types.GCAttachment{}},
		{`,"cni.dev/attachments":[{"containerID":"a","ifname":"i"}]`, true, []types.GCAttachment{{ContainerID: "a", IfName: "i"}}},
		{`,"cni.dev/attachments":[{"containerID":"a","ifname":"i"}],"cni.dev/valid-attachments":[{"containerID":"b","ifname":"i"}]`, true,
			[]types.GCAttachment{{ContainerID: "b", IfName: "i"}}},
	}
	for _, test := range tests {
		c, err := parseConfig(conf(test.more))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, c.Valid); c.HasValid != test.has || diff != "" {
			t.Errorf("%s: has %v, (-want +got):\n%s", test.more, c.HasValid, diff)
		}
	}
}

func TestAddRejectsWhatItWouldIgnore(t *testing.T) {
	tests := map[string]struct {
		more string
		code uint
		says string
	}{
		"chained second":     {`,"prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0"}]}`, 7, `field "prevResult": has interfaces already`},
		"addressed already":  {`,"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.1/24"}]}`, 7, `field "prevResult": has ips already`},
		"asked address":      {`,"runtimeConfig":{"ips":["10.0.0.1"]}`, 2, `field "runtimeConfig.ips": beeline-cni cannot choose it`},
		"asked MAC":          {`,"runtimeConfig":{"mac":"02:00:00:00:00:01"}`, 2, `field "runtimeConfig.mac"`},
		"mappings' type":     {`,"runtimeConfig":{"portMappings":{"hostPort":80}}`, 7, `field "runtimeConfig.portMappings": got object, want array`},
		"mapping's type":     {`,"runtimeConfig":{"portMappings":[80]}`, 7, `field "runtimeConfig.portMappings": got number, want object`},
		"limits' type":       {`,"runtimeConfig":{"bandwidth":[]}`, 7, `field "runtimeConfig.bandwidth": got array, want object`},
		"limit's type":       {`,"runtimeConfig":{"bandwidth":{"egressRate":"1M"}}`, 7, `field "runtimeConfig.bandwidth.egressRate": got string, want float64`},
		"a limit too small":  {`,"runtimeConfig":{"bandwidth":{"egressRate":999}}`, 7, "runtimeConfig.bandwidth.egressRate: 999 bit/s is not between 1000 and"},
		"a limit too large":  {`,"runtimeConfig":{"bandwidth":{"ingressRate":1e16}}`, 7, "runtimeConfig.bandwidth.ingressRate"},
		"a limit on macvlan": {`,"device":"macvlan","runtimeConfig":{"bandwidth":{"egressRate":1e6}}`, 7, "pods with macvlan devices have no limits"},
		"a negative limit":   {`,"runtimeConfig":{"bandwidth":{"ingressRate":-1e6}}`, 7, "runtimeConfig.bandwidth.ingressRate"},
		"DNS's type":         {`,"runtimeConfig":{"dns":{"servers":"x"}}`, 7, `field "runtimeConfig.dns.servers": got string`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFakeNode()
			err := w.plugin().Add(args(conf(test.more)))
			if codeOf(t, err) != test.code || !strings.Contains(err.Error(), test.says) || len(w.steps) != 0 {
				t.Errorf("got %v after %v, want code %d with %s", err, w.steps, test.code, test.says)
			}
		})
	}
	for _, more := range []string{`,"prevResult":{"cniVersion":"1.1.0"}`, `,"runtimeConfig":{"ips":[],"mac":"","portMappings":[],"bandwidth":{}}`} {
		if err := newFakeNode().plugin().Add(args(conf(more))); err != nil {
			t.Errorf("%s: %v", more, err)
		}
	}
}

func TestDNSOfTheRuntimeComesFirst(t *testing.T) {
	c, err := parseConfig(conf(`,"dns":{"nameservers":["1.1.1.1"],"domain":"d"},"runtimeConfig":{"dns":{"servers":["10.0.0.10"],"searches":["svc"],"options":["ndots:5"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.dns()
	want := types.DNS{Nameservers: []string{"10.0.0.10"}, Domain: "d", Search: []string{"svc"}, Options: []string{"ndots:5"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestParsePod(t *testing.T) {
	tests := []struct {
		args string
		want agentapi.PodRef
		says string
	}{
		{"", agentapi.PodRef{}, ""},
		{"K8S_POD_NAMESPACE=ns;K8S_POD_NAME=n", agentapi.PodRef{Namespace: "ns", Name: "n"}, ""},
		{"IgnoreUnknown=true;X=y;K8S_POD_UID=u", agentapi.PodRef{UID: "u"}, ""},
		{"X=y", agentapi.PodRef{}, "unknown args"},
		{"IgnoreUnknown=0;X=y", agentapi.PodRef{}, "unknown args"},
		{"K8S_POD_NAME", agentapi.PodRef{}, "invalid pair"},
		{"IgnoreUnknown=perhaps", agentapi.PodRef{}, "IgnoreUnknown=perhaps"},
	}
	for _, test := range tests {
		got, err := parsePod(test.args)
		if test.says == "" {
			if err != nil || got != test.want {
				t.Errorf("%s: got %v %v", test.args, got, err)
			}
			continue
		}
		if codeOf(t, err) != types.ErrInvalidEnvironmentVariables || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want code 4 with %q", test.args, err, test.says)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(conf(""))
	f.Add(conf(`,"prevResult":{"ips":[1]},"runtimeConfig":{"dns":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig(data)
		if err != nil {
			return
		}
		_ = c.checkForAdd()
		_, _ = c.dns()
		_, _ = c.prevResult()
	})
}
