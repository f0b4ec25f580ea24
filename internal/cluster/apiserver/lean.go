package apiserver

import (
	"bytes"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Most of a watch event is of no use here: managed fields, container settings and states, images. The decoder drops
// these fields from the message, without copying it, before it makes the object. Decoding dominates the cost of
// watches.

// parts are the fields of a message to keep, by their numbers in generated.proto; nil keeps all of a field.
type parts map[protowire.Number]parts

var (
	// name, namespace, uid, resourceVersion, creationTimestamp, deletionTimestamp, labels, annotations
	partsOfMetadata  = parts{1: nil, 3: nil, 5: nil, 6: nil, 8: nil, 9: nil, 11: nil, 12: nil}
	partsOfContainer = parts{6: nil, 24: nil} // ports, restartPolicy
	partsOf          = map[string]parts{
		"Pod": {
			1: partsOfMetadata,
			2: {2: partsOfContainer, 20: partsOfContainer, 10: nil, 11: nil}, // containers, initContainers, nodeName, hostNetwork
			3: {1: nil, 6: nil, 12: nil},                                     // phase, podIP, podIPs
		},
		"Node":          {1: partsOfMetadata, 2: nil, 3: {4: nil, 5: nil}}, // spec; conditions, addresses
		"Namespace":     {1: partsOfMetadata},
		"Service":       {1: partsOfMetadata, 2: nil, 3: nil},         // spec, status
		"EndpointSlice": {1: partsOfMetadata, 2: nil, 3: nil, 4: nil}, // endpoints, ports, addressType
		"NetworkPolicy": {1: partsOfMetadata, 2: nil},                 // spec
	}
)

// lean wraps serializers; its protobuf serializer drops unneeded parts of single objects.
type lean struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (l lean) SupportedMediaTypes() []runtime.SerializerInfo {
	all := slices.Clone(l.NegotiatedSerializer.SupportedMediaTypes())
	for i := range all {
		if all[i].MediaType == runtime.ContentTypeProtobuf {
			all[i].Serializer = leanSerializer{all[i].Serializer}
		}
	}
	return all
}

type leanSerializer struct{ runtime.Serializer }

// unmarshaler is an object with a protobuf encoding.
type unmarshaler interface {
	runtime.Object
	Unmarshal(data []byte) error
}

// Decode makes an object. Other kinds, and unexpected encodings, go to the usual serializer.
func (s leanSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		if kind, raw, ok := openEnvelope(data); ok {
			if object := newObject(kind); object != nil {
				return object, &kind, decodeLean(object, raw, partsOf[kind.Kind])
			}
		}
	}
	return s.Serializer.Decode(data, defaults, into)
}

// newObject makes an empty object of a watched kind; nil for another kind.
func newObject(kind schema.GroupVersionKind) unmarshaler {
	if partsOf[kind.Kind] == nil || !slices.ContainsFunc(resources, func(r resource) bool { return r.group == kind.GroupVersion() }) {
		return nil
	}
	object, err := scheme.New(kind)
	if err != nil {
		return nil
	}
	known, _ := object.(unmarshaler)
	return known
}

var leanMessages = sync.Pool{New: func() any { return new([]byte) }}

func decodeLean(object unmarshaler, raw []byte, keep parts) error {
	message := leanMessages.Get().(*[]byte)
	defer leanMessages.Put(message) // an object does not reference the message that it was decoded from
	kept, ok := appendParts((*message)[:0], raw, keep)
	if *message = kept; !ok {
		return object.Unmarshal(raw) // for its error
	}
	return object.Unmarshal(kept)
}

// appendParts appends the kept fields of a message. It returns false for an invalid message.
func appendParts(to, message []byte, keep parts) ([]byte, bool) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return to, false
		}
		length := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if length < 0 {
			return to, false
		}
		field := message[:tag+length]
		message = message[tag+length:]
		within, kept := keep[number]
		switch {
		case !kept:
		case within == nil || kind != protowire.BytesType:
			to = append(to, field...)
		default:
			value, _ := protowire.ConsumeBytes(field[tag:])
			var ok bool
			begin := len(to) + tag
			if to, ok = appendParts(append(to, field[:tag]...), value, within); !ok {
				return to, false
			}
			to = insertLength(to, begin)
		}
	}
	return to, true
}

// insertLength inserts the length of everything behind an offset at that offset.
func insertLength(message []byte, at int) []byte {
	length := len(message) - at
	size := protowire.SizeVarint(uint64(length))
	message = append(message, make([]byte, size)...)
	copy(message[at+size:], message[at:at+length])
	protowire.AppendVarint(message[:at], uint64(length))
	return message
}

// openEnvelope reads runtime.Unknown, the API server's envelope of an object: its kind and its message.
func openEnvelope(data []byte) (kind schema.GroupVersionKind, raw []byte, ok bool) {
	data, ok = bytes.CutPrefix(data, []byte("k8s\x00"))
	for ok && len(data) > 0 {
		number, wire, tag := protowire.ConsumeTag(data)
		if tag < 0 || wire != protowire.BytesType {
			return kind, nil, false
		}
		value, length := protowire.ConsumeBytes(data[tag:])
		if length < 0 {
			return kind, nil, false
		}
		data = data[tag+length:]
		switch number {
		case 1:
			kind, ok = readTypeMeta(value)
		case 2:
			raw = value
		default: // contentEncoding and contentType
			ok = len(value) == 0
		}
	}
	return kind, raw, ok && kind.Kind != ""
}

// readTypeMeta reads apiVersion and kind.
func readTypeMeta(message []byte) (kind schema.GroupVersionKind, ok bool) {
	var texts [3]string
	for len(message) > 0 {
		number, wire, tag := protowire.ConsumeTag(message)
		if tag < 0 || wire != protowire.BytesType || number >= protowire.Number(len(texts)) {
			return kind, false
		}
		value, length := protowire.ConsumeString(message[tag:])
		if length < 0 {
			return kind, false
		}
		texts[number], message = value, message[tag+length:]
	}
	return schema.FromAPIVersionAndKind(texts[1], texts[2]), true
}
