package lb

// WithoutIterator makes Sockets destroy as on a kernel without bpf_sock_destroy.
func (s *Sockets) WithoutIterator() { s.probed = true }

// Probe returns why this kernel cannot destroy sockets by an iterator.
func (s *Sockets) Probe() error {
	d, err := loadDestroyer(s.peers)
	if err != nil {
		return err
	}
	return d.close()
}
