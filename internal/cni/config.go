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
)

// maxSocketPath is the kernel's limit for the path of a unix socket, in bytes (sun_path without its end).
const maxSocketPath = 107

// config is the plugin's part of a network configuration. Only agentSocket and routing are ours; the rest is of
// the specification, its conventions, and the runtime.
type config struct {
	CNIVersion  string
	Name        string
	AgentSocket string
	// Routing is who forwards the packets of this network's pods (see throughStack).
	Routing       string
	DNS           types.DNS
	RuntimeConfig map[string]json.RawMessage
	// PrevResult is nil without one; its content is decoded by who needs it.
	PrevResult map[string]any
	// Valid are the attachments that GC leaves alone. HasValid tells an empty list from none.
	Valid    []types.GCAttachment
	HasValid bool
}

// parseConfig reads a network configuration strictly: a key that nobody defines is an error, since it is
// most likely a misspelt one. Errors have CNI code 7 and name the field.
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
		"routing":                   &c.Routing,
		"dns":                       &c.DNS,
		"runtimeConfig":             &c.RuntimeConfig,
		"prevResult":                &c.PrevResult,
		"cni.dev/valid-attachments": &attachments,
		"cni.dev/attachments":       &olderAttachments, // what CNI 1.1.0 said by mistake
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
		case strings.HasPrefix(key, "cni.dev/"): // the specification's own, of later versions
			into = &ignored
		case key == "ipam":
			problems = append(problems, refuseIPAM(fields[key]))
			continue
		case key == "ipMasq":
			problems = append(problems, refuseIPMasq(fields[key]))
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

// fieldError says what is in the field and what should be, in JSON's words.
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

// suggestion finds a field that is spelt alike but for upper and lower case.
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

// refuseIPAM accepts what says nothing, since runtimes write an empty ipam out of habit.
func refuseIPAM(raw json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || len(fields) > 0 {
		return errors.New("field \"ipam\": the agent hands out the addresses, remove it")
	}
	return nil
}

func refuseIPMasq(raw json.RawMessage) error {
	if bytes.Equal(raw, []byte("false")) || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return errors.New("field \"ipMasq\": masquerading is set by the agent's flag --masquerade, remove it")
}

// checkForAdd refuses what ADD would have to ignore although it was asked for.
func (c *config) checkForAdd() error {
	for _, key := range []string{"interfaces", "ips"} {
		if list, _ := c.PrevResult[key].([]any); len(list) > 0 {
			return invalidConfig(fmt.Sprintf("field \"prevResult\": has %s already; %s makes the pod's interface and must be the first plugin", key, Type))
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

// dns is what the result says about name resolution: the runtime's word (capability "dns") before the
// configuration's.
func (c *config) dns() (types.DNS, error) {
	if _, ok := c.RuntimeConfig["dns"]; !ok {
		return c.DNS, nil
	}
	var asked struct {
		Servers  []string `json:"servers"`
		Searches []string `json:"searches"`
		Options  []string `json:"options"`
	}
	if err := c.capability("dns", &asked); err != nil {
		return types.DNS{}, err
	}
	return types.DNS{Nameservers: asked.Servers, Domain: c.DNS.Domain, Search: asked.Searches, Options: asked.Options}, nil
}

// capability decodes what the runtime says for a capability, if it says anything.
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
