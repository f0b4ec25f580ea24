package result

// Encryption holds what the encryption suite measures beside the samples.
type Encryption struct {
	// Wires has one entry per network and MTU: what the nodes' uplinks carried before the rounds.
	Wires []EncryptionWire `json:"wires,omitempty"`
	// Paced has one entry per MTU: the rate of the paced streams.
	Paced []EncryptionRate `json:"paced,omitempty"`
	// OneCPU says that the machine has one CPU, so that the CPU time of sender and receiver is not told apart.
	OneCPU bool `json:"oneCPU,omitempty"`
}

// EncryptionWire is what two nodes' uplinks carried while their pods exchanged a marked payload.
type EncryptionWire struct {
	Network string `json:"network"`
	MTU     int    `json:"mtu"`
	// Kind is wireguard or ipsec, empty for a network that does not encrypt.
	Kind string `json:"kind,omitempty"`
	// Payload is how many bytes each end sent.
	Payload int `json:"payload"`
	// Frames counts all frames, Marked those with the mark of the payload, Inside those with a pod's address in their outer
	// header.
	Frames int `json:"frames"`
	Marked int `json:"marked"`
	Inside int `json:"inside"`
	// EncryptedBytes are those of frames of the kind.
	EncryptedBytes int `json:"encryptedBytes"`
}

// EncryptionRate is the rate of the paced streams at one MTU, the same for all networks: a tenth of the least maximum.
type EncryptionRate struct {
	MTU int `json:"mtu"`
	// Maximum is the throughput of the slowest network, Slowest, in one sample before the rounds, in Gbit/s.
	Maximum float64 `json:"maximum"`
	Slowest string  `json:"slowest"`
	// Rate is that of the paced streams, in Gbit/s.
	Rate float64 `json:"rate"`
}
