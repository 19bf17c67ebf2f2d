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
	"path/filepath"
)

// Program is any binary, run as the caller says.
type Program struct {
	// Binary is its name in Config.BinDir, or a path.
	Binary string
	Args   []string
	// Env, in the form NAME=value, is added to the environment.
	Env []string
	// Host is where it runs, Config.Host if nil.
	Host Host
	// Port is where it serves, see FreePort; 0 for a program that does not.
	Port int
	// Check returns nil when the program is ready.
	Check func(context.Context) error
}

// NewProgram adds a process that this package knows nothing about. It is not started.
// A program that serves the API can be registered; it has to see to it that the
// APIServices trust its certificate.
func (cp *ControlPlane) NewProgram(name string, program Program) (*Component, error) {
	component, err := cp.newComponent(name, program.Binary, rankServer, ComponentConfig{Host: program.Host, Port: program.Port, Env: program.Env})
	if err != nil {
		return nil, err
	}
	if filepath.IsAbs(program.Binary) {
		component.binary = program.Binary
	}
	component.ownCertificate = true
	component.check = program.Check
	component.args = func() ([]string, error) { return program.Args, nil }
	return component, nil
}

// FreePort returns a port that nobody else gets while the control plane runs.
func (cp *ControlPlane) FreePort(name string) (int, error) {
	return cp.freePort(name, cp.config.Host)
}

func (cp *ControlPlane) freePort(name string, host Host) (int, error) {
	port, reservation, err := freePort(name, host)
	if err != nil {
		return 0, err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.reservations = append(cp.reservations, reservation)
	return port, nil
}
