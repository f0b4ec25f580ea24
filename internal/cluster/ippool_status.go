package cluster

// IPPoolStatus is what agents report of an IPPool.
type IPPoolStatus struct {
	// Name and UID are those of the pool.
	Name, UID string
	// IPv4 and IPv6 are nil without a subnet of the family.
	IPv4, IPv6 *IPPoolCounts
	// Invalid and Overlaps are sentences; empty if the pool is valid, and has all its addresses for itself.
	Invalid, Overlaps string
}

// IPPoolCounts counts the addresses of one family of an IPPool: see v1alpha1.IPPoolCounts.
type IPPoolCounts struct {
	Total, Allocated, Free, Conflicts int64
}

// Exhausted names the families without a free address; empty if there is none.
func (s *IPPoolStatus) Exhausted() string {
	none := func(c *IPPoolCounts) bool { return c != nil && c.Free <= 0 }
	switch v4, v6 := none(s.IPv4), none(s.IPv6); {
	case v4 && v6:
		return "no IPv4 and no IPv6 address is free"
	case v4:
		return "no IPv4 address is free"
	case v6:
		return "no IPv6 address is free"
	}
	return ""
}
