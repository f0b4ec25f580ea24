package parent

import (
	"fmt"

	"github.com/safchain/ethtool"
)

// features returns which features of a device are on, by the kernel's names.
func features(name string) (map[string]bool, error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("read features of %s: %w", name, err)
	}
	defer tool.Close()
	on, err := tool.Features(name)
	if err != nil {
		return nil, fmt.Errorf("read features of %s: %w", name, err)
	}
	return on, nil
}
