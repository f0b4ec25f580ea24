package agentapi

import "net/netip"

// IPPool is a pool of addresses of a physical network, as this node sees it.
type IPPool struct {
	Name    string         `json:"name"`
	Subnets []netip.Prefix `json:"subnets"`
	// Device is the kind of the pods' devices; empty means the node's.
	Device string `json:"device,omitempty"`
	Uplink string `json:"uplink,omitempty"`
	VLAN   int    `json:"vlan,omitempty"`

	Default  bool `json:"default,omitempty"`
	Disabled bool `json:"disabled,omitempty"`
	// Invalid says why the pool gives no address; empty if it is valid. Overlaps are sentences on who else has some of its
	// addresses.
	Invalid  string   `json:"invalid,omitempty"`
	Overlaps []string `json:"overlaps,omitempty"`

	Families []IPPoolUse `json:"families,omitempty"`
}

// IPPoolUse is how many addresses of one family of a pool are in use.
type IPPoolUse struct {
	// Family is "IPv4" or "IPv6".
	Family string `json:"family"`
	// Total are the addresses that the pool may give, at most math.MaxInt64, Free those of them without a claim.
	Total int64 `json:"total"`
	Free  int64 `json:"free"`
	// Allocated are the claims of the pool, Conflicts the addresses that other machines have.
	Allocated int64 `json:"allocated"`
	Conflicts int64 `json:"conflicts,omitempty"`
}
