package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// rereadInterval is how often the directory is read without a notification: for file systems without
	// notifications and for symbolic links whose target changed elsewhere.
	rereadInterval = 10 * time.Second
	// quietTime is how long the directory must be unchanged before it is read, so that a file that is written in
	// place is complete. The wait is bounded by patience.
	quietTime = 50 * time.Millisecond
	patience  = time.Second
)

// manifests is the Source that reads a directory.
type manifests struct {
	dir            string
	log            *slog.Logger
	rereadInterval time.Duration
	quietTime      time.Duration

	// Only Run uses these. files is nil before the directory was first read.
	files map[string]*origin // by path
	last  *Snapshot

	mu       sync.Mutex
	problems []string
}

// NewManifests makes a Source of the *.yaml, *.yml and *.json files in dir, which may be created later. A file may
// hold several documents and lists. It ignores kinds without meaning for the network, subdirectories and names that
// begin with a dot. It follows changes by notification: replace files by rename; a mounted ConfigMap works.
//
// An invalid file is reported with its line, and its last valid content remains active. NetworkPolicies apply as far
// as they are valid (see NetworkPolicy.Invalid). Deleting a file deletes its objects. While the directory is missing or
// unreadable nothing changes.
func NewManifests(dir string, log *slog.Logger) Source {
	return &manifests{
		dir:            filepath.Clean(dir),
		log:            log,
		rereadInterval: rereadInterval,
		quietTime:      quietTime,
	}
}

// Problems are the current problems.
func (m *manifests) Problems() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.problems)
}

// Run delivers snapshots until ctx ends.
func (m *manifests) Run(ctx context.Context, deliver func(*Snapshot)) error {
	w := &watch{dir: m.dir, log: m.log}
	defer w.close()
	for {
		w.follow()
		if snapshot := m.load(); snapshot != nil {
			m.log.Info("cluster state changed", "nodes", len(snapshot.Nodes), "manifests", m.dir)
			deliver(snapshot)
		}
		if !w.wait(ctx, m.rereadInterval, m.quietTime) {
			return nil
		}
	}
}

// load reads the directory; nil if that fails or nothing changed.
func (m *manifests) load() *Snapshot {
	since := time.Now()
	if err := m.readDir(); err != nil {
		m.report([]error{err})
		return nil
	}
	files := slices.SortedFunc(maps.Values(m.files), func(a, b *origin) int { return strings.Compare(a.name, b.name) })
	objects, errs := resolve(files)
	m.report(errs)
	last := m.last
	if last == nil {
		last = &Snapshot{}
	}
	snapshot := &Snapshot{
		Nodes:           keepSame(last.Nodes, nodesOf(objects)),
		Namespaces:      keepSame(last.Namespaces, objectsOf[*Namespace](objects)),
		Pods:            keepSameList(last.Pods, objectsOf[*Pod](objects)),
		Services:        keepSame(last.Services, objectsOf[*Service](objects)),
		EndpointSlices:  keepSameList(last.EndpointSlices, objectsOf[*EndpointSlice](objects)),
		NetworkPolicies: keepSame(last.NetworkPolicies, objectsOf[*NetworkPolicy](objects)),
		IPPools:         keepSame(last.IPPools, objectsOf[*IPPool](objects)),
		Incomplete:      slices.ContainsFunc(files, func(f *origin) bool { return f.early && f.good == nil }),
		Partial:         partial(files),
		Since:           since,
	}
	if m.last != nil && snapshot.equal(m.last) {
		return nil
	}
	m.last = snapshot
	return snapshot
}

// equal reports whether two snapshots of a directory have the same content. The lists have been through keepSame.
func (s *Snapshot) equal(o *Snapshot) bool {
	return Same(s.Nodes, o.Nodes) && Same(s.Namespaces, o.Namespaces) && s.Pods.Same(o.Pods) && Same(s.Services, o.Services) &&
		s.EndpointSlices.Same(o.EndpointSlices) && Same(s.NetworkPolicies, o.NetworkPolicies) && Same(s.IPPools, o.IPPools) && s.Incomplete == o.Incomplete &&
		slices.Equal(s.Partial, o.Partial)
}

// partial gives the kinds of which objects may never have been active: kinds that an invalid file mentions, and all
// kinds if it mentions none.
func partial(files []*origin) (kinds Kinds) {
	has := map[Kind]bool{}
	for _, f := range files {
		switch {
		case !f.early || f.good != nil:
		case f.read == nil && len(f.mentions) == 0:
			return AllKinds
		case f.read == nil:
			for _, k := range f.mentions {
				has[k] = true
			}
		default:
			for _, o := range f.read.objects {
				has[o.kind] = true
			}
		}
	}
	for _, k := range AllKinds {
		if has[k] {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// keepSameList is keepSame for a List.
func keepSameList[T Object](old List[T], now []T) List[T] {
	if old.Len() == len(now) && reflect.DeepEqual(old.Slice(), now) {
		return old
	}
	return ListOf(now...)
}

// keepSame gives the old list if the new one has the same content.
func keepSame[T any](old, now []T) []T {
	if len(old) == len(now) && reflect.DeepEqual(old, now) {
		return old
	}
	return now
}

// objectsOf picks the objects of one type, sorted by key.
func objectsOf[T keyed](objects []keyedObject) (all []T) {
	for _, o := range objects {
		if object, ok := o.object.(T); ok {
			all = append(all, object)
		}
	}
	slices.SortFunc(all, func(a, b T) int { return a.Key().Compare(b.Key()) })
	return all
}

// nodesOf gives the Nodes, sorted by name.
func nodesOf(objects []keyedObject) []Node {
	nodes := []Node{}
	for _, o := range objectsOf[*NodeObject](objects) {
		nodes = append(nodes, o.Node)
	}
	return nodes
}

// readDir updates m.files. On error nothing changes.
func (m *manifests) readDir() error {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	first := m.files == nil
	if first {
		m.files = map[string]*origin{}
	}
	there := map[string]bool{}
	for _, entry := range entries {
		path := filepath.Join(m.dir, entry.Name())
		if !isManifest(entry.Name()) || entry.IsDir() {
			continue
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && entry.Type() != fs.ModeSymlink {
			continue // deleted since ReadDir
		}
		there[path] = true
		f := m.files[path]
		if f == nil {
			f = &origin{name: path, early: first}
			m.files[path] = f
		}
		if err != nil {
			f.read, f.errs, f.mentions = nil, []error{fmt.Errorf("%s:1: %w", path, err)}, AllKinds
			continue
		}
		m.take(f, data)
	}
	maps.DeleteFunc(m.files, func(path string, _ *origin) bool { return !there[path] })
	return nil
}

// take stores the content of a file, and does nothing if it has not changed.
func (m *manifests) take(f *origin, data []byte) {
	sum := sha256.Sum256(data)
	if f.read != nil && f.read.sum == sum {
		return
	}
	if f.good != nil && f.good.sum == sum {
		f.read, f.errs = f.good, f.good.complaints
		return
	}
	f.read, f.errs = parse(f.name, data)
	f.mentions = slices.DeleteFunc(slices.Clone(AllKinds), func(k Kind) bool { return !bytes.Contains(data, []byte(k)) })
	if f.read != nil {
		f.errs = f.read.complaints
		for _, kind := range f.read.ignored {
			m.log.Debug("manifest ignored", "file", f.name, "kind", kind)
		}
	}
}

func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// report keeps the problems for Problems and logs problems that appeared or ended.
func (m *manifests) report(errs []error) {
	problems := make([]string, 0, len(errs))
	for _, err := range errs {
		problems = append(problems, err.Error())
	}
	m.mu.Lock()
	before := m.problems
	m.problems = problems
	m.mu.Unlock()
	LogProblems(m.log, before, problems)
}
