package cluster

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// fieldError is what is wrong with one field of an object.
type fieldError struct {
	field string // such as "status.addresses[1].address"
	err   error
}

func (e fieldError) Error() string { return e.field + ": " + e.err.Error() }
func (e fieldError) Unwrap() error { return e.err }

// checks collects what is wrong with an object while it is reduced.
type checks struct{ errs []fieldError }

func (c *checks) fail(field, format string, args ...any) {
	c.errs = append(c.errs, fieldError{field, fmt.Errorf(format, args...)})
}

// name checks an object's own name; how strict the API server is differs between kinds.
func (c *checks) name(name string, rule func(string) []string) {
	if name == "" {
		c.fail("metadata.name", "missing")
	} else if reasons := rule(name); len(reasons) > 0 {
		c.fail("metadata.name", "%s", strings.Join(reasons, ", "))
	}
}

// key checks namespace and name of a namespaced object. A manifest that leaves the namespace out means "default".
func (c *checks) key(namespace, name string, rule func(string) []string) Key {
	if namespace == "" {
		namespace = "default"
	} else if reasons := validation.IsDNS1123Label(namespace); len(reasons) > 0 {
		c.fail("metadata.namespace", "%s", strings.Join(reasons, ", "))
	}
	c.name(name, rule)
	return Key{Namespace: Intern(namespace), Name: name}
}

// address reads a unicast address; what names its owner in errors.
func (c *checks) address(field, text, what string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		c.fail(field, "%q is not an IP address", text)
	case addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast():
		c.fail(field, "%s cannot be the address of %s", addr, what)
	default:
		return addr, true
	}
	return netip.Addr{}, false
}

// prefix reads a CIDR without host bits.
func (c *checks) prefix(field, text string) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		c.fail(field, "%q is not a CIDR such as 10.1.0.0/24", text)
	case prefix != prefix.Masked():
		c.fail(field, "%s has host bits, %s would not", prefix, prefix.Masked())
	case prefix.Addr().Is4In6():
		c.fail(field, "%s is IPv4 written as IPv6", prefix)
	default:
		return prefix, true
	}
	return netip.Prefix{}, false
}

// port reads a port number; zero means none.
func (c *checks) port(field string, number int32) uint16 {
	if number < 1 || number > 65535 {
		c.fail(field, "%d is not a port (1 to 65535)", number)
		return 0
	}
	return uint16(number)
}
