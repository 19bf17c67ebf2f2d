/*
Copyright The Restaurant API Server Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// AttachVariable is the environment variable with the default of Config.Attach.
const AttachVariable = "CONTROLPLANE_ATTACH"

// portsFile has the ports of a control plane's components.
const portsFile = "ports.json"

// attached is a control plane of another process. Nil stands for none.
type attached struct {
	dir   string
	ports map[string]int
	// lock keeps other tests from registering their servers at the same time.
	lock *os.File
}

// openAttached returns the control plane in Config.Attach, or nil if that is empty.
func openAttached(config Config) (*attached, error) {
	if config.Attach == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(config.Attach)
	if err != nil {
		return nil, err
	}
	lock, _, err := takeLock(filepath.Join(dir, lockFile))
	if err == nil {
		err = lock.Close()
	}
	if !errors.Is(err, errLocked) {
		return nil, errors.Join(fmt.Errorf("no control plane runs on the directory %s: start one, for instance with \"make run\"", dir), err)
	}
	a := &attached{dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, portsFile))
	if err == nil {
		err = json.Unmarshal(data, &a.ports)
	}
	if err != nil {
		return nil, fmt.Errorf("the control plane on the directory %s is not complete: wait until it is ready (%w)", dir, err)
	}
	if a.lock, _, err = takeLock(filepath.Join(dir, "attached.lock")); err != nil {
		return nil, fmt.Errorf("another test uses the control plane on the directory %s: wait until it has ended (%w)", dir, err)
	}
	return a, nil
}

// copyPKI copies the control plane's certificate authorities into a directory, so that it
// accepts certificates that are issued there.
func (a *attached) copyPKI(dir string) error {
	if a == nil {
		return nil
	}
	return os.CopyFS(dir, os.DirFS(filepath.Join(a.dir, "pki")))
}

// take reports whether the control plane has the component, and points the component to it.
// Servers are never taken.
func (a *attached) take(component *Component) bool {
	if a == nil || a.ports[component.name] == 0 || component.rank == rankServer {
		return false
	}
	component.attached = true
	component.port = a.ports[component.name]
	component.dir = filepath.Join(a.dir, component.name)
	component.logFile = filepath.Join(a.dir, "logs", component.name+".log")
	return true
}

// writePorts lets other processes attach to the control plane.
func (cp *ControlPlane) writePorts() error {
	ports := map[string]int{}
	for _, component := range cp.Components() {
		ports[component.name] = component.port
	}
	data, err := json.Marshal(ports)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(cp.directory.path, portsFile), data, 0o600)
}

// detach registers the server of the other process again.
func (cp *ControlPlane) detach() error {
	if cp.attached == nil {
		return nil
	}
	var err error
	if cp.APIServer != nil && !cp.config.APIServer.Off {
		err = cp.Register(context.Background(), &Component{
			name: apiServerName, host: cp.APIServer.host, port: cp.attached.ports[apiServerName], attached: true,
			logFile: filepath.Join(cp.attached.dir, "logs", apiServerName+".log"),
		})
	}
	return errors.Join(err, cp.attached.lock.Close())
}
