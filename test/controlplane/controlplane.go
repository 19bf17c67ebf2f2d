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
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// These are the names of the components that every control plane has.
const (
	etcdName              = "etcd"
	kubeAPIServerName     = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
	apiServerName         = "apiserver"
)

// BinDirVariable is the environment variable with the default of Config.BinDir.
const BinDirVariable = "CONTROLPLANE_BIN_DIR"

// Config has the options of a control plane. For tests, only Dir needs a value.
type Config struct {
	// Dir is the directory for all files of the control plane. It is created if it does not
	// exist. Starting on the directory of an earlier run continues with its data.
	Dir string
	// Attach is the directory of a control plane that another process runs. Its etcd,
	// kube-apiserver and kube-controller-manager are used instead of new ones, with their flags,
	// and can't be stopped from here. The API server is always one of this control plane's own,
	// in Dir. Until Stop, it is registered instead of the other process's. The default is the
	// environment variable CONTROLPLANE_ATTACH.
	Attach string

	// BinDir is a directory with programs: "etcd", "kube-apiserver" and so on. The default is
	// the environment variable CONTROLPLANE_BIN_DIR. Without that, package binaries builds the
	// programs of Kubernetes the first time, and keeps them in the user's cache directory. A
	// server is taken from it only if it lies in the module of the working directory: in
	// another module, a program of the same name is another server.
	BinDir string
	// KubernetesVersion is the release of Kubernetes to run, such as "v1.34.4". "1.34" is the
	// latest known release of a minor version. The default is the environment variable
	// CONTROLPLANE_KUBERNETES_VERSION, and without that the release that this module is made
	// for. Other releases are built the first time, whatever BinDir holds.
	KubernetesVersion string
	// Manifests is the directory with the kustomization that registers the API server in a
	// cluster. It has the server's Service, ServiceAccount, APIServices, and other objects that
	// the server needs. The default is artifacts/deploy/base of the module of the working
	// directory, which for a test is the directory of its package.
	Manifests string

	// Host is the host of the components, this machine if nil.
	Host Host
	// Client says how clients reach kube-apiserver.
	Client ClientConfig

	Etcd              ComponentConfig
	KubeAPIServer     ComponentConfig
	ControllerManager ComponentConfig
	APIServer         ServerConfig

	// Timeouts limit how long the control plane waits.
	Timeouts Timeouts

	// Progress, if set, is called with messages, which are sentences without a full stop. It may
	// be called from several goroutines.
	Progress func(message string)
}

// Timeouts limit the waits of a control plane. A zero value means the default. Only the context
// limits the builds of programs.
type Timeouts struct {
	// Ready is how long a component may take to become ready, and kube-apiserver to serve a
	// registered version. The default is 5 minutes.
	Ready time.Duration
	// Stop is how long a component may take to end before it is killed. The default is 2
	// minutes.
	Stop time.Duration
}

// ClientConfig says how clients reach kube-apiserver. The clients are the REST configurations
// and kubectl commands that a control plane returns. The zero value means directly.
type ClientConfig struct {
	// Host is the host of the clients, Config.Host if nil.
	Host Host
	// ProxyURL is the URL of the clients' HTTP or SOCKS5 proxy, if any.
	ProxyURL string
}

// proxy is a function for the field Proxy of http.Transport.
func (c ClientConfig) proxy(*http.Request) (*url.URL, error) { return url.Parse(c.ProxyURL) }

// ComponentConfig configures one process.
type ComponentConfig struct {
	// Off leaves the component out of Start. It can be started later.
	Off bool
	// Binary is the path of the program. The default is the one with the component's name in
	// Config.BinDir, if any. Otherwise, package binaries has the programs of Kubernetes, and
	// servers are built: see Package.
	Binary string
	// Package is the main package of the program, for "go build" in the working directory. It is
	// built at every start of the control plane, unless it is up to date. For a server named
	// "apiserver" without any other program, it is cmd/apiserver of the module of the working
	// directory.
	Package string
	// Host is the host of the process, Config.Host if nil.
	Host Host
	// Port is the port to listen on; 0 means any free one.
	Port int
	// Flags, in the form --name=value, are added to the component's own flags and replace those
	// of the same name.
	Flags []string
	// Env, in the form NAME=value, is added to the environment.
	Env []string
}

// ServerConfig configures one process of the tested API server. It gets the flags of
// apiserver.Options: --secure-port, --kubeconfig and so on.
type ServerConfig struct {
	ComponentConfig
	// Run, if set, runs the server in this process with the flags, until the context ends. A
	// debugger and the race detector then reach it. It has to print its log itself. There is no
	// program, and Env is ignored.
	Run func(ctx context.Context, flags []string) error
	// Etcd names the etcd to store objects in. If empty, the server embeds one in its own
	// process. "etcd" is kube-apiserver's. Any other name is an etcd of its own, which starts
	// with the first server that names it.
	Etcd string
	// OwnCertificate is set for a server that gets a certificate with its own flags, and makes
	// the APIServices trust it.
	OwnCertificate bool
	// Kubeconfig is the server's kubeconfig. The default is one for the service account in the
	// manifests.
	Kubeconfig string
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Etcd stores kube-apiserver's objects.
	Etcd *Component
	// KubeAPIServer is the server for clients.
	KubeAPIServer *Component
	// ControllerManager runs the controllers of a cluster, for instance garbage
	// collection and the deletion of namespaces.
	ControllerManager *Component
	// APIServer is the tested server.
	APIServer *Component
	// PKI holds the certificate authorities.
	PKI *PKI

	config    Config
	directory *directory
	// attached has the components that another process runs, if any, see Config.Attach.
	attached  *attached
	admin     *rest.Config
	manifests *manifests
	died      chan error
	// afterTests are the checks of Main after the tests.
	afterTests []func() error

	mu           sync.Mutex
	components   []*Component
	reservations []net.PacketConn
	servers      []*http.Server
}

// Start starts a control plane and returns when all of it is ready: the server is registered and
// kube-apiserver serves its API. After an error, all started components are stopped.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	cp, err := prepare(config)
	if err != nil {
		return nil, err
	}
	if err := cp.start(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return cp, nil
}

// prepare claims the directory and creates its files, but starts nothing.
func prepare(config Config) (_ *ControlPlane, err error) {
	if config.Dir == "" {
		return nil, errors.New("the control plane needs a directory: set Config.Dir")
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	cp := &ControlPlane{config: config, died: make(chan error, 1)}
	if cp.manifests, err = config.readManifests(); err != nil {
		return nil, err
	}
	if cp.directory, err = claimDirectory(config.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cp.Stop())
		}
	}()
	if cp.attached, err = openAttached(config); err != nil {
		return nil, err
	}
	ended, err := cp.directory.endLeftovers()
	if err != nil {
		return nil, err
	}
	for _, name := range ended {
		cp.progress("ended %s, left over from an earlier run", name)
	}
	if err := cp.attached.copyPKI(filepath.Join(cp.directory.path, "pki")); err != nil {
		return nil, err
	}
	if cp.PKI, err = openPKI(filepath.Join(cp.directory.path, "pki"), time.Now); err != nil {
		return nil, fmt.Errorf("the certificates in %s cannot be used: %w", cp.directory.path, err)
	}
	if cp.Etcd, err = cp.newEtcd(etcdName, config.Etcd); err != nil {
		return nil, err
	}
	if cp.KubeAPIServer, err = cp.NewKubeAPIServer(kubeAPIServerName, cp.Etcd.URL(), config.KubeAPIServer); err != nil {
		return nil, err
	}
	if cp.admin, err = cp.restConfigFor("admin", []string{"system:masters"}); err != nil {
		return nil, err
	}
	if err := writeKubeconfig(cp.Kubeconfig(), cp.admin, "", config.Client.ProxyURL); err != nil {
		return nil, err
	}
	if cp.ControllerManager, err = cp.newControllerManager(config.ControllerManager); err != nil {
		return nil, err
	}
	if cp.APIServer, err = cp.NewAPIServer(apiServerName, config.APIServer); err != nil {
		return nil, err
	}
	err = cp.writePorts()
	return cp, err
}

// complete fills in the defaults.
func (c *Config) complete() (err error) {
	if c.BinDir == "" {
		c.BinDir = os.Getenv(BinDirVariable)
	}
	// The components run in directories of their own.
	if c.BinDir != "" {
		if c.BinDir, err = filepath.Abs(c.BinDir); err != nil {
			return err
		}
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	c.Attach = cmp.Or(c.Attach, os.Getenv(AttachVariable))
	c.Timeouts.Ready = cmp.Or(c.Timeouts.Ready, readyTimeout)
	c.Timeouts.Stop = cmp.Or(c.Timeouts.Stop, stopTimeout)
	c.Host = hostOr(c.Host, thisMachine{})
	c.Client.Host = hostOr(c.Client.Host, c.Host)
	return nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	if err := cp.build(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		component *Component
		off       bool
	}{
		{cp.Etcd, cp.config.Etcd.Off},
		{cp.KubeAPIServer, cp.config.KubeAPIServer.Off},
	} {
		if step.off || step.component.attached {
			continue
		}
		if err := cp.startAndTell(ctx, step.component); err != nil {
			return err
		}
	}
	if !cp.config.APIServer.Off {
		if err := cp.Install(ctx); err != nil {
			return err
		}
		if err := cp.startServer(ctx); err != nil {
			return err
		}
		if err := cp.Register(ctx, cp.APIServer); err != nil {
			return err
		}
	}
	// It is started last. Some controllers look for new kinds only every half minute, but at
	// once when they start.
	if !cp.config.ControllerManager.Off && !cp.ControllerManager.attached {
		return cp.startAndTell(ctx, cp.ControllerManager)
	}
	return nil
}

// build builds the programs to start, the server first. Its errors then appear before
// kube-apiserver has been built.
func (cp *ControlPlane) build(ctx context.Context) error {
	for _, step := range []struct {
		component *Component
		off       bool
	}{
		{cp.APIServer, cp.config.APIServer.Off || cp.config.APIServer.Run != nil},
		{cp.Etcd, cp.config.Etcd.Off},
		{cp.KubeAPIServer, cp.config.KubeAPIServer.Off},
		{cp.ControllerManager, cp.config.ControllerManager.Off},
	} {
		if step.off || step.component.attached {
			continue
		}
		if _, err := step.component.binary(ctx); err != nil {
			return fmt.Errorf("cannot start %s: %w", step.component.name, err)
		}
	}
	return nil
}

// startServer starts the server, and its etcd if it has one.
func (cp *ControlPlane) startServer(ctx context.Context) error {
	if name := cp.config.APIServer.Etcd; name != "" {
		if etcd := cp.Component(name); etcd.PID() == 0 {
			if err := cp.startAndTell(ctx, etcd); err != nil {
				return err
			}
		}
	}
	return cp.startAndTell(ctx, cp.APIServer)
}

func (cp *ControlPlane) startAndTell(ctx context.Context, component *Component) error {
	began := time.Now()
	if err := component.Start(ctx); err != nil {
		return err
	}
	cp.progress("%s is ready (%.1f s)", component.Name(), time.Since(began).Seconds())
	return nil
}

func (cp *ControlPlane) progress(format string, args ...any) {
	cp.config.Progress(fmt.Sprintf(format, args...))
}

// Stop ends all components gracefully, servers before the components that they depend on. The
// directory keeps their data.
func (cp *ControlPlane) Stop() error {
	components := cp.Components()
	slices.SortStableFunc(components, func(a, b *Component) int { return b.rank - a.rank })
	var errs []error
	for len(components) > 0 {
		next := slices.IndexFunc(components, func(c *Component) bool { return c.rank != components[0].rank })
		if next < 0 {
			next = len(components)
		}
		errs = append(errs, stopAll(components[:next])...)
		components = components[next:]
	}
	errs = append(errs, cp.detach())
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, reservation := range cp.reservations {
		errs = append(errs, reservation.Close())
	}
	for _, server := range cp.servers {
		errs = append(errs, server.Close())
	}
	cp.reservations, cp.servers = nil, nil
	return errors.Join(append(errs, cp.directory.release())...)
}

// stopAll stops components that do not depend on each other.
func stopAll(components []*Component) []error {
	errs := make([]error, len(components))
	var wg sync.WaitGroup
	for i, component := range components {
		wg.Go(func() { errs[i] = component.Stop() })
	}
	wg.Wait()
	return errs
}

// Wait returns nil when the context is done. If a component ends unexpectedly, it returns an
// error that names the component and shows the end of its log.
func (cp *ControlPlane) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-cp.died:
		return err
	}
}

// Components returns all components, running or not.
func (cp *ControlPlane) Components() []*Component {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return slices.Clone(cp.components)
}

// Component returns the component with that name, or nil.
func (cp *ControlPlane) Component(name string) *Component {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, component := range cp.components {
		if component.name == name {
			return component
		}
	}
	return nil
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (cp *ControlPlane) Kubeconfig() string {
	return filepath.Join(cp.directory.path, "kubeconfig")
}

// Kubectl returns a command that runs kubectl as the administrator. For another user, set
// KUBECONFIG in its environment, or pass --kubeconfig. The first call may have to build kubectl.
// If that fails, running the command returns the error.
func (cp *ControlPlane) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	binary, err := cp.program("kubectl")(ctx)
	cmd := cp.config.Client.Host.Command(ctx, binary, args...)
	if err != nil {
		cmd.Err = err
	}
	cmd.Env = append(environment(),
		"KUBECONFIG="+cp.Kubeconfig(),
		"KUBECACHEDIR="+filepath.Join(cp.directory.path, "kubectl-cache"))
	return cmd
}

// newComponent adds a process to the control plane.
func (cp *ControlPlane) newComponent(name, program string, rank int, config ComponentConfig) (*Component, error) {
	if cp.Component(name) != nil {
		return nil, fmt.Errorf("the control plane has a component %s already: give the new one another name", name)
	}
	component := &Component{
		name:     name,
		binary:   cp.binary(name, program, config),
		timeouts: cp.config.Timeouts,
		host:     hostOr(config.Host, cp.config.Host),
		port:     config.Port,
		dir:      filepath.Join(cp.directory.path, name),
		logFile:  filepath.Join(cp.directory.path, "logs", name+".log"),
		lockFile: cp.directory.processLock(name),
		rank:     rank,
		died:     cp.died,
		flags:    slices.Clone(config.Flags),
		env:      slices.Clone(config.Env),
	}
	if cp.attached.take(component) {
		cp.mu.Lock()
		defer cp.mu.Unlock()
		cp.components = append(cp.components, component)
		return component, nil
	}
	err := os.Rename(component.logFile, component.logFile+".previous")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if component.port != 0 {
		// It is better to fail now than after half of the components have started.
		if err := checkPort(name, component.host, component.port); err != nil {
			return nil, err
		}
	} else if component.port, err = cp.freePort(name, component.host); err != nil {
		return nil, err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.components = append(cp.components, component)
	return component, nil
}
