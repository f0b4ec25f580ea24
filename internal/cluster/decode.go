package cluster

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manifest is the content of one file.
type manifest struct {
	// sum is the checksum of the file's content.
	sum     [sha256.Size]byte
	objects []keyedObject
	// complaints are about objects that apply as far as they are valid: see NetworkPolicy.Invalid.
	complaints []error
	// ignored are the kinds that this package does not use, one entry for each object.
	ignored []string
}

// parse reads every document of a YAML or JSON file. With any error the manifest is nil: a file applies as a whole.
// Errors read "file:line: reason".
func parse(file string, data []byte) (*manifest, []error) {
	m := manifest{sum: sha256.Sum256(data)}
	var errs []error
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			errs = append(errs, parseError(file, data, err))
			break
		}
		if len(root.Content) == 0 {
			continue
		}
		doc := document{file: file, root: root.Content[0]}
		errs = append(errs, doc.read(&m)...)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return &m, nil
}

// document is one object of a file, which may be an item of a list.
type document struct {
	file string
	root *yaml.Node
	// implied is the kind of an item that has none.
	implied metav1.TypeMeta
}

func (d document) read(m *manifest) []error {
	if d.root.Tag == "!!null" {
		return nil // only comments
	}
	asJSON, err := d.json()
	if err != nil {
		return []error{err}
	}
	kind := d.implied
	if err := json.Unmarshal(asJSON, &kind); err != nil {
		return []error{d.errorf("", "not a Kubernetes object")}
	}
	if newObject, known := newObjects[kind]; known {
		return d.readObject(m, newObject(), asJSON)
	}
	ofItems := metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: strings.TrimSuffix(kind.Kind, "List")}
	switch {
	case kind.Kind == "":
		return []error{d.errorf("", "not a Kubernetes object: it has no kind")}
	case kind.Kind == "List":
		return d.readList(m, kind, "v1", metav1.TypeMeta{})
	case versionOf(kind) != "":
		return d.readUnknownVersion(m, kind, asJSON)
	case versionOf(ofItems) != "":
		return d.readList(m, kind, versionOf(ofItems), ofItems)
	case kind.APIVersion == "":
		return []error{d.errorf("", "%s: apiVersion is missing", kind.Kind)}
	}
	m.ignored = append(m.ignored, kind.APIVersion+" "+kind.Kind)
	return nil
}

// readList reads the output of `kubectl get -o yaml`. Items may omit their kind if the list's kind implies it. The items
// of a list with an unknown apiVersion are read, too: each has its own, or that of the list.
func (d document) readList(m *manifest, list metav1.TypeMeta, version string, ofItems metav1.TypeMeta) (errs []error) {
	if list.APIVersion != version {
		m.complaints = append(m.complaints, d.errorf("apiVersion", "%s: %w", list.Kind, unknownVersion(list.APIVersion, version)))
	}
	_, items := child(d.root, "items")
	if items == nil || items.Kind != yaml.SequenceNode {
		return []error{d.errorf("items", "%s without items", list.Kind)}
	}
	for _, item := range items.Content {
		errs = append(errs, document{d.file, item, ofItems}.read(m)...)
	}
	return errs
}

// json gives the document as JSON. YAML that JSON does not have (duplicate keys, non-string keys) is an error.
func (d document) json() ([]byte, error) {
	var value any
	if err := d.root.Decode(&value); err != nil {
		return nil, syntaxError(d.file, err)
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		return nil, d.errorf("", "not expressible as JSON: %w", err)
	}
	return asJSON, nil
}

// errorf makes an error with the line of the field, or of its nearest existing parent.
func (d document) errorf(path, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", d.file, lineOf(d.root, path), fmt.Errorf(format, args...))
}

var (
	// The JSON decoder gives the field only in the text:
	// "json: cannot unmarshal string into Go struct field NodeSpec.spec.podCIDRs of type []string".
	typeErrorText = regexp.MustCompile(`^json: cannot unmarshal (\S+) into Go struct field \w+\.(\S+) of type (.+)$`)
	// The YAML decoder gives the line only in its text: "yaml: line 3: …" and "line 3: …".
	yamlErrorText = regexp.MustCompile(`(?s)^yaml: (?:unmarshal errors:\s+)?line (\d+): (.*)$`)
)

func (d document) typeError(err error) error {
	if m := typeErrorText.FindStringSubmatch(err.Error()); m != nil {
		return d.errorf(m[2], "%s is a %s, want %s", m[2], m[1], m[3])
	}
	return d.errorf("", "%w", err)
}

// parseError makes an error with the line of the mistake. The YAML parser counts lines from 0 in some errors, gives the
// beginning of what surrounds the mistake in others, and no line in the rest. The mistake is in the last line of the
// shortest part that has the same error. Any part has that of an unclosed list or mapping in [] or {}.
func parseError(file string, data []byte, err error) error {
	lines := bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := yamlErrorText.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	if unclosed.MatchString(text) {
		return fmt.Errorf("%s:%d: %s", file, min(line+1, len(lines)), text)
	}
	line = 1 + sort.Search(len(lines)-1, func(i int) bool {
		found := firstError(bytes.Join(lines[:i+1], nil))
		return found != nil && found.Error() == err.Error()
	})
	return fmt.Errorf("%s:%d: %s", file, line, text)
}

// unclosed matches the parser's errors inside [] and {}.
var unclosed = regexp.MustCompile(`^did not find expected (',' or|node content)`)

// firstError gives the error of the first invalid document.
func firstError(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var root yaml.Node
		if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func syntaxError(file string, err error) error {
	if m := yamlErrorText.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		return fmt.Errorf("%s:%d: %s", file, line, m[2])
	}
	return fmt.Errorf("%s:1: %w", file, err)
}
