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
	"fmt"
	"os"
	"path/filepath"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane/binaries"
)

// Program is any program with its arguments.
type Program struct {
	// Binary is its path, or the name of a program in Config.BinDir or of Kubernetes.
	Binary string
	Args   []string
	// Env, in the form NAME=value, is added to the environment.
	Env []string
	// Host is the host of the program, Config.Host if nil.
	Host Host
	// Port is the port that it serves on, see FreePort, or 0.
	Port int
	// Check returns nil when the program is ready.
	Check func(context.Context) error
}

// NewProgram adds a process that this package knows nothing about. It is not started. A
// program that serves the API can be registered. It has to make the APIServices trust its
// certificate.
func (cp *ControlPlane) NewProgram(name string, program Program) (*Component, error) {
	config := ComponentConfig{Host: program.Host, Port: program.Port, Env: program.Env}
	if filepath.IsAbs(program.Binary) {
		config.Binary = program.Binary
	}
	component, err := cp.newComponent(name, program.Binary, rankServer, config)
	if err != nil {
		return nil, err
	}
	component.ownCertificate = true
	component.check = program.Check
	component.args = func() ([]string, error) { return program.Args, nil }
	return component, nil
}

// ProgramPath returns the path of a program. The program is found by its name, or built,
// as for components.
func (cp *ControlPlane) ProgramPath(ctx context.Context, name string) (string, error) {
	return cp.program(name)(ctx)
}

// binary returns a function that finds or builds the program of a component.
func (cp *ControlPlane) binary(name, program string, config ComponentConfig) func(context.Context) (string, error) {
	switch {
	case config.Package != "":
		return func(ctx context.Context) (string, error) { return cp.buildPackage(ctx, name, config.Package) }
	case config.Binary != "":
		return func(context.Context) (string, error) {
			path, err := filepath.Abs(config.Binary)
			if err == nil {
				_, err = os.Stat(path)
			}
			return path, err
		}
	default:
		return cp.program(program)
	}
}

// program returns a function that finds or builds a program by its name.
func (cp *ControlPlane) program(name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		options := cp.building()
		if name == "etcd" {
			options.Version = binaries.Version()
		}
		release, err := options.Release()
		if err != nil {
			return "", err
		}
		dir := cp.config.BinDir
		if binaries.Known(name) && release != binaries.Version() || !binaries.Known(name) && !inModule(dir) {
			dir = ""
		}
		if dir != "" {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
		if !binaries.Known(name) {
			return cp.buildCommand(ctx, name)
		}
		if dir != "" {
			return "", fmt.Errorf("there is no %s in %s: build it there, for instance with \"make binaries\", or name no directory, so that it is built in your cache",
				name, dir)
		}
		dir, err = binaries.Kubernetes(ctx, options, name)
		return filepath.Join(dir, name), err
	}
}

// inModule reports whether a directory lies in the module of the working directory, or there is no module.
func inModule(dir string) bool {
	root, err := moduleRoot()
	if err != nil {
		return true
	}
	path, err := filepath.Rel(root, dir)
	return err == nil && filepath.IsLocal(path)
}

// buildCommand builds a program of the working directory's module.
func (cp *ControlPlane) buildCommand(ctx context.Context, name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "cmd", name)
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("%w: name the program, or its package", err)
	}
	return cp.buildPackage(ctx, name, dir)
}

// buildPackage builds the program of a component into the directory of the control plane.
func (cp *ControlPlane) buildPackage(ctx context.Context, name, pkg string) (string, error) {
	path := filepath.Join(cp.directory.path, "bin", name)
	return path, binaries.Package(ctx, cp.building(), pkg, path)
}

func (cp *ControlPlane) building() binaries.Options {
	return binaries.Options{Version: cp.config.KubernetesVersion, Progress: cp.config.Progress}
}

// FreePort returns a port that is reserved while the control plane runs.
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
