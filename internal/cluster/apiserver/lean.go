package apiserver

import (
	"bytes"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
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
	partsOfMetadata = parts{1: nil, 3: nil, 5: nil, 6: nil, 8: nil, 9: nil, 11: nil, 12: nil}
	// the same and ownerReferences, of which StatefulSets matter
	partsOfPodMetadata = parts{1: nil, 3: nil, 5: nil, 6: nil, 8: nil, 9: nil, 11: nil, 12: nil, 13: nil}
	partsOfContainer   = parts{6: nil, 24: nil} // ports, restartPolicy
	partsOf            = map[schema.GroupVersionKind]parts{
		corev1.SchemeGroupVersion.WithKind("Pod"): {
			1: partsOfPodMetadata,
			2: {2: partsOfContainer, 20: partsOfContainer, 10: nil, 11: nil, 29: nil}, // containers, initContainers, nodeName, hostNetwork, runtimeClassName
			3: {1: nil, 6: nil, 12: nil},                                              // phase, podIP, podIPs
		},
		corev1.SchemeGroupVersion.WithKind("Node"):                {1: partsOfMetadata, 2: nil, 3: {4: nil, 5: nil}}, // spec; conditions, addresses
		corev1.SchemeGroupVersion.WithKind("Namespace"):           {1: partsOfMetadata},
		corev1.SchemeGroupVersion.WithKind("Service"):             {1: partsOfMetadata, 2: nil, 3: nil},         // spec, status
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"):  {1: partsOfMetadata, 2: nil, 3: nil, 4: nil}, // endpoints, ports, addressType
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"): {1: partsOfMetadata, 2: nil},                 // spec
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

// envelope is the memory of one message: what the API server wraps an object in, and the parts of it that are kept.
type envelope struct {
	runtime.Unknown
	kept []byte
}

var envelopes = sync.Pool{New: func() any { return new(envelope) }}

// Decode makes an object. Other kinds, and unexpected encodings, go to the usual serializer.
func (s leanSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	message, enveloped := bytes.CutPrefix(data, []byte("k8s\x00"))
	if into != nil || !enveloped {
		return s.Serializer.Decode(data, defaults, into)
	}
	e := envelopes.Get().(*envelope)
	defer envelopes.Put(e) // an object does not reference the message that it was decoded from
	e.Unknown = runtime.Unknown{Raw: e.Raw[:0]}
	if e.Unmarshal(message) != nil || e.ContentEncoding+e.ContentType != "" {
		return s.Serializer.Decode(data, defaults, into)
	}
	kind := schema.FromAPIVersionAndKind(e.APIVersion, e.Kind)
	object, err := scheme.New(kind)
	full, ok := object.(unmarshaler)
	keep := partsOf[kind]
	if err != nil || !ok || keep == nil {
		return s.Serializer.Decode(data, defaults, into)
	}
	if e.kept, ok = appendParts(e.kept[:0], e.Raw, keep); !ok {
		return full, &kind, full.Unmarshal(e.Raw) // for its error
	}
	return full, &kind, full.Unmarshal(e.kept)
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
