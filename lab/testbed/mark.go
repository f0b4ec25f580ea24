package testbed

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// markedNetns lists the namespaces of a lab, or of all labs where lab is empty, as path → name of the lab.
func markedNetns(lab string) (map[string]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, e := range entries {
		m := mark.FindStringSubmatch(e.Name())
		if m != nil && (lab == "" || m[1] == lab) {
			found[filepath.Join(netnsDir, e.Name())] = m[1]
		}
	}
	return found, nil
}

// below reports whether path is dir or inside it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}
