package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/natports"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/qdisc"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/vlan"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
	"github.com/beeline-cni/beeline/internal/install"
)

// Uninstall removes from this node what an agent with this configuration and the plugin have installed: first what
// brings new pods, then the datapath, then the state. It fails while the agent runs and, unless forced, while pods
// are attached; forced, it removes their devices. say is called with the name of each removed thing. A failure does
// not stop it, and a missing thing is no error.
func Uninstall(config Config, force bool, say func(removed string)) error {
	_, err := os.Stat(config.StateDir)
	hadState := err == nil
	unlock, err := lock(config.StateDir)
	if errors.Is(err, errOtherAgent) {
		return fmt.Errorf("%w: stop it first, or it would restore everything", err)
	}
	if err != nil {
		return err
	}
	defer unlock()
	pods, err := attachedPods(config.StateDir)
	if err != nil {
		return err
	}
	if len(pods) > 0 && !force {
		return fmt.Errorf("pods are attached (%s): remove them first, or use --force, which disconnects them", strings.Join(slices.Sorted(maps.Values(pods)), ", "))
	}
	var errs []error
	step := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	tell := func(all []string) {
		for _, removed := range all {
			say(removed)
		}
	}
	count := func(what string, n int) {
		if n > 0 {
			say(fmt.Sprintf("%d %s", n, what))
		}
	}

	installed, err := install.Remove(install.Config{ConfDir: config.CNIConfDir, BinDir: config.CNIBinDir, CommandDir: config.CommandDir})
	tell(installed)
	step("remove plugin", err)
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		err := device.Pods.Delete(name)
		step("remove device of pod "+pods[name], err)
		if err == nil {
			say(fmt.Sprintf("device %s of pod %s", name, pods[name]))
		}
	}
	step("remove macvlan devices of pods", removeMacvlans(config.StateDir, say))
	// Before its programs, without which it would accept packets of anyone.
	removed, err := vxlan.Remove()
	if removed {
		say("device " + vxlan.Name)
	}
	step("remove tunnel", err)
	vlans, err := vlan.RemoveAll()
	for _, name := range vlans {
		say("device " + name)
	}
	step("remove VLAN devices", err)
	if removed, err = wireguard.Remove(); removed {
		say("device " + wireguard.Name)
	}
	step("remove WireGuard device", err)
	if removed, err = ipsec.Remove(); removed {
		say("device " + ipsec.Name)
	}
	step("remove the XFRM interface of IPsec", errors.Join(err, ipsec.RemoveStates()))
	met, err := samenode.Remove(config.BPFFS)
	tell(met)
	step("remove same-node sockets", err)
	loaded, err := attach.Remove(config.BPFFS)
	tell(loaded)
	step("remove datapath", err)
	released, err := qdisc.ReleaseAll()
	for _, name := range released {
		say("the queueing discipline of device " + name)
	}
	step("remove queueing disciplines", err)
	step("remove neighbours", neigh.Manage(0, nil))
	rules, err := route.SyncTunnelRules(nil)
	step("remove routing rules", err)
	present, err := route.Read(0)
	step("read routes", err)
	_, ofPools, err := route.SyncSources(nil, false, present)
	step("remove routes of IPPools", err)
	count("routes and routing rules of IPPools", ofPools)
	ofClosed, err := route.SyncBlackholes(route.Blackholes{}, false)
	step("remove routing rules of closed pods", err)
	count("routing rules", rules+ofClosed)
	routes, err := route.Sync(nil)
	count("routes", routes)
	step("remove routes", err)
	reserved, err := natports.Load(config.StateDir)
	if err == nil && len(reserved.Added) > 0 {
		if err = natports.Release(config.StateDir); err == nil {
			say("reservation of ports " + reserved.Ports.String())
		}
	}
	step("release ports", err)
	if err = removeState(config.StateDir); err == nil && hadState {
		say("state in " + config.StateDir)
	}
	step("remove state", err)
	return errors.Join(errs...)
}

// attachedPods gives the pods of this node's devices, by device.
func attachedPods(stateDir string) (map[string]string, error) {
	devices, err := device.Pods.HostEnds()
	if err != nil {
		return nil, err
	}
	pods := map[string]string{}
	for _, d := range devices {
		if len(d.Name) == len(device.HostName("", "")) { // others only begin like ours
			pods[d.Name] = "unknown"
		}
	}
	// Unreadable state does not keep the removal.
	known, _ := endpoint.Stored(stateDir)
	for _, e := range known {
		if _, there := pods[e.HostDevice]; there {
			pods[e.HostDevice] = e.PodName()
		}
	}
	return pods, nil
}

// removeMacvlans removes the macvlan devices in pods: without the programs of their parents these would be open. Endpoints that cannot be
// read do not keep the removal.
func removeMacvlans(stateDir string, say func(removed string)) error {
	known, _ := endpoint.Stored(stateDir)
	var errs []error
	for _, e := range known {
		if e.Macvlan == nil {
			continue
		}
		if err := device.Pods.DeleteMacvlan(e.Netns, e.IfName); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", e.PodName(), err))
			continue
		}
		say(fmt.Sprintf("macvlan device %s in pod %s", e.IfName, e.PodName()))
	}
	return errors.Join(errs...)
}

// removeState removes the state directory; it empties one that is a mount point.
func removeState(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if e := os.Remove(dir); e != nil && !errors.Is(e, unix.EBUSY) {
		err = errors.Join(err, e)
	}
	return err
}
