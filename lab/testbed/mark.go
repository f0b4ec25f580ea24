package testbed

import (
	"os"
	"path/filepath"
	"regexp"
)

const (
	runDir   = "/run/beeline-lab"
	netnsDir = "/run/netns"
	wireName = "wire"
)

func labDir(lab string) string { return filepath.Join(runDir, lab) }

func labCgroup(root, lab string) string { return filepath.Join(root, "beeline-lab", lab) }

func nodeNetns(lab, node string) string {
	return filepath.Join(netnsDir, "bl-"+lab+"-"+node)
}

func podNetns(lab, node, pod string) string { return nodeNetns(lab, node) + "." + pod }

// mark takes the name of a namespace apart: lab, node, and pod with its leading dot where it is a pod. A
// lab's name has no dot and the node is the last part before it, so every name belongs to one lab only:
// "bl-a-n1-n1" is node n1 of the lab "a-n1", not anything of the lab "a".
var mark = regexp.MustCompile(`^bl-([a-z0-9][a-z0-9-]*)-(n[0-9]+|` + wireName + `)(\.[a-z0-9-]+)?$`)

// markedNetns lists the namespaces of all labs by the name of the lab.
func markedNetns() (map[string][]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	found := map[string][]string{}
	for _, e := range entries {
		if m := mark.FindStringSubmatch(e.Name()); m != nil {
			found[m[1]] = append(found[m[1]], filepath.Join(netnsDir, e.Name()))
		}
	}
	return found, nil
}
