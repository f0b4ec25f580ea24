package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// maxSocketPath is the kernel's limit for the path of a unix socket, in bytes (sun_path without the terminating NUL).
const maxSocketPath = 107

// config is the plugin's part of a network configuration. agentSocket, device, ipPool and routing are Beeline's; the other fields come
// from the specification, its conventions, and the runtime.
type config struct {
	CNIVersion  string
	Name        string
	AgentSocket string
	// Device is the kind of the pods' devices, such as "veth"; empty leaves it to the agent.
	Device string
	// IPPool names the IPPools of this network's pods, as the pod's annotation does; empty leaves it to the pod.
	IPPool string
	// Routing is what forwards the packets of this network's pods (see throughStack).
	Routing       string
	DNS           types.DNS
	RuntimeConfig map[string]json.RawMessage
	// PrevResult is nil without one.
	PrevResult map[string]any
	// Valid are the attachments that GC keeps. HasValid distinguishes an empty list from a missing one.
	Valid    []types.GCAttachment
	HasValid bool
}

// parseConfig reads a network configuration strictly: an unknown key is an error, because it is most likely misspelt.
// Errors have CNI code 7 and name the field.
func parseConfig(data []byte) (*config, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "decode network configuration: "+err.Error(), "")
	}
	c := &config{AgentSocket: agentapi.DefaultSocket}
	var attachments, olderAttachments []types.GCAttachment
	var ignored any
	known := map[string]any{
		"cniVersion":                &c.CNIVersion,
		"name":                      &c.Name,
		"agentSocket":               &c.AgentSocket,
		"device":                    &c.Device,
		"ipPool":                    &c.IPPool,
		"routing":                   &c.Routing,
		"dns":                       &c.DNS,
		"runtimeConfig":             &c.RuntimeConfig,
		"prevResult":                &c.PrevResult,
		"cni.dev/valid-attachments": &attachments,
		"cni.dev/attachments":       &olderAttachments, // the name in CNI 1.1.0, by mistake
		"type":                      new(string),
		"cniVersions":               new([]string),
		"capabilities":              new(map[string]bool),
		"args":                      new(map[string]any),
		"disableCheck":              new(bool),
		"disableGC":                 new(bool),
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		into, ok := known[key]
		switch {
		case ok:
		case strings.HasPrefix(key, "cni.dev/"): // the specification's own keys in later versions
			into = &ignored
		case key == "ipam":
			problems = append(problems, checkIPAM(fields[key]))
			continue
		case key == "ipMasq":
			problems = append(problems, checkIPMasq(fields[key]))
			continue
		default:
			problems = append(problems, fmt.Errorf("unknown field %q%s", key, suggestion(key, known)))
			continue
		}
		if err := json.Unmarshal(fields[key], into); err != nil {
			problems = append(problems, fieldError(key, err))
		}
	}
	if err := checkSocket(c.AgentSocket); err != nil {
		problems = append(problems, fmt.Errorf("field \"agentSocket\": %w", err))
	}
	if c.Device != "" && !device.Kind(c.Device).Known() {
		problems = append(problems, fmt.Errorf("field \"device\": %q is not one of %q", c.Device, device.Kinds))
	}
	if err := checkRouting(c.Routing); err != nil {
		problems = append(problems, fmt.Errorf("field \"routing\": %w", err))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, invalidConfig(strings.ReplaceAll(err.Error(), "\n", "; "))
	}

	_, c.HasValid = fields["cni.dev/valid-attachments"]
	c.Valid = attachments
	if _, older := fields["cni.dev/attachments"]; older && !c.HasValid {
		c.Valid, c.HasValid = olderAttachments, true
	}
	return c, nil
}

func invalidConfig(reason string) *types.Error {
	return types.NewError(types.ErrInvalidNetworkConfig, "invalid network configuration: "+reason, "")
}

// fieldError names the JSON type of the field and the expected one.
func fieldError(key string, err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("field %q: %w", key, err)
	}
	if wrong.Field != "" {
		key += "." + wrong.Field
	}
	return fmt.Errorf("field %q: got %s, want %s", key, wrong.Value, jsonKind(wrong.Type))
}

func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return "object"
	case reflect.Slice:
		return "array"
	default:
		return t.Kind().String()
	}
}

// suggestion finds a field that differs only in case.
func suggestion(key string, known map[string]any) string {
	for name := range known {
		if strings.EqualFold(name, key) {
			return fmt.Sprintf(", did you mean %q?", name)
		}
	}
	return ""
}

func checkSocket(socket string) error {
	switch {
	case !filepath.IsAbs(socket):
		return fmt.Errorf("%q is not an absolute path", socket)
	case len(socket) > maxSocketPath:
		return fmt.Errorf("path has %d bytes, the kernel allows %d", len(socket), maxSocketPath)
	default:
		return nil
	}
}

// checkIPAM accepts an empty object, which some runtimes write.
func checkIPAM(raw json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || len(fields) > 0 {
		return errors.New("field \"ipam\": the agent allocates addresses; remove the field")
	}
	return nil
}

func checkIPMasq(raw json.RawMessage) error {
	if bytes.Equal(raw, []byte("false")) || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return errors.New("field \"ipMasq\": the agent's flag --masquerade sets masquerading; remove the field")
}

// checkForAdd returns an error for requests that ADD cannot satisfy.
func (c *config) checkForAdd() error {
	for _, key := range []string{"interfaces", "ips"} {
		if list, _ := c.PrevResult[key].([]any); len(list) > 0 {
			return invalidConfig(fmt.Sprintf("field \"prevResult\": has %s already; %s creates the pod's interface and must be the first plugin", key, Type))
		}
	}
	for _, key := range []string{"ips", "ipRanges", "mac"} {
		switch strings.TrimSpace(string(c.RuntimeConfig[key])) {
		case "", "null", "[]", `""`:
		default:
			return types.NewError(types.ErrUnsupportedField,
				fmt.Sprintf("field \"runtimeConfig.%s\": %s cannot choose it", key, Type), "")
		}
	}
	return nil
}

// dns returns the result's DNS settings: the runtime's (capability "dns"), else the configuration's.
func (c *config) dns() (types.DNS, error) {
	if _, ok := c.RuntimeConfig["dns"]; !ok {
		return c.DNS, nil
	}
	var requested struct {
		Servers  []string `json:"servers"`
		Searches []string `json:"searches"`
		Options  []string `json:"options"`
	}
	if err := c.capability("dns", &requested); err != nil {
		return types.DNS{}, err
	}
	return types.DNS{Nameservers: requested.Servers, Domain: c.DNS.Domain, Search: requested.Searches, Options: requested.Options}, nil
}

// capability decodes the runtime's value for a capability, if there is one.
func (c *config) capability(name string, into any) error {
	raw, ok := c.RuntimeConfig[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return invalidConfig(fieldError("runtimeConfig."+name, err).Error())
	}
	return nil
}
