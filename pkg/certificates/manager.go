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

// Package certificates gives the replicas of a server certificates that kube-apiserver trusts,
// and renews them in time. It needs no other program. The replicas share a certificate
// authority in a Secret, and each issues a certificate for itself. All of them make the
// server's APIServices trust the certificate authority.
//
// A certificate authority is renewed in steps, so that at each moment kube-apiserver trusts
// all certificates in use. After two thirds of its life the next certificate authority is made
// and trusted, but issues nothing. When kube-apiserver has had time to learn that, it takes
// over, and the previous one stays trusted until it expires. Any replica takes any step; the
// resourceVersion of the Secret decides which replica was first.
//
// The same steps serve an Issuer, which keeps the certificates of others: of an etcd
// and its clients, for instance.
package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"
)

// Config says where the certificate authority is kept, and which server it is for.
type Config struct {
	// Namespace and Secret are where the certificate authority is kept. A ConfigMap of the same
	// name, if it exists, gets the bundle without the keys.
	Namespace, Secret string
	// Service is the name of the server's Service in the same namespace.
	Service string
	// APIServices are the names of those that shall trust the certificate authority, as far as
	// they lead to this namespace. One that does not exist yet gets it when it does.
	APIServices []string
	// CAValidity and Validity are how long a certificate authority and a certificate are
	// valid for. They are renewed after two thirds of it.
	CAValidity, Validity time.Duration
}

// Validate checks the durations.
func (c Config) Validate() error { return validate(c.CAValidity, c.Validity) }

func validate(authority, certificate time.Duration) error {
	if certificate <= 0 || authority < 2*certificate {
		return fmt.Errorf("the validity of a certificate (%s) must be above 0, and that of its certificate authority (%s) at least twice as long", certificate, authority)
	}
	return nil
}

// Manager keeps the certificate of one replica.
type Manager struct {
	config      Config
	authority   keeper
	aggregator  aggregator.Interface
	certificate atomic.Pointer[keyPair]

	mu        sync.Mutex
	listeners []dynamiccertificates.Listener
}

var (
	_ dynamiccertificates.CertKeyContentProvider = &Manager{}
	_ dynamiccertificates.ControllerRunner       = &Manager{}
)

// New returns a manager that has no certificate until Sync was successful.
func New(config Config, cluster *rest.Config) (*Manager, error) {
	kube, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, err
	}
	aggregator, err := aggregator.NewForConfig(cluster)
	if err != nil {
		return nil, err
	}
	m := &Manager{config: config, aggregator: aggregator}
	m.authority = keeper{
		secrets:  secrets{kube, config.Namespace, ", or give it a certificate by --tls-cert-file and --tls-private-key-file"},
		name:     config.Secret,
		validity: config.CAValidity,
		clock:    clock.RealClock{},
		publish:  m.publish,
	}
	return m, nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (m *Manager) Name() string {
	return fmt.Sprintf("serving-cert::secret/%s/%s", m.config.Namespace, m.config.Secret)
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (m *Manager) CurrentCertKeyContent() (cert, key []byte) {
	if current := m.certificate.Load(); current != nil {
		return current.certPEM, current.keyPEM
	}
	return nil, nil
}

// AddListener implements dynamiccertificates.Notifier.
func (m *Manager) AddListener(listener dynamiccertificates.Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listeners = append(m.listeners, listener)
}

// RunOnce implements dynamiccertificates.ControllerRunner. The server calls Sync
// before it serves.
func (*Manager) RunOnce(context.Context) error { return nil }

// Run implements dynamiccertificates.ControllerRunner: it renews in time, until the
// context ends.
func (m *Manager) Run(ctx context.Context, _ int) {
	repeat(ctx, m.config.Validity, "The serving certificate", m.Sync)
}

// Sync takes the step that is due: for the certificate authority, for the APIServices, and for
// the certificate of this replica. An error says what to do about it.
func (m *Manager) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	authority, err := m.authority.sync(ctx)
	if err != nil {
		return err
	}
	return m.syncCertificate(authority)
}

// publish makes the APIServices, and readers of the ConfigMap, trust the bundle.
func (m *Manager) publish(ctx context.Context, bundle []byte) error {
	if err := m.authority.publishBundle(ctx, m.config.Secret, bundle); err != nil {
		return err
	}
	apiServices := m.aggregator.ApiregistrationV1().APIServices()
	for _, name := range m.config.APIServices {
		apiService, err := apiServices.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue // It is installed later.
		case err != nil:
			return m.explainAPIService(name, err)
		case apiService.Spec.Service == nil || apiService.Spec.Service.Namespace != m.config.Namespace:
			continue // Another instance serves it.
		case apiService.Spec.InsecureSkipTLSVerify || bytes.Equal(apiService.Spec.CABundle, bundle):
			continue
		}
		apiService.Spec.CABundle = bundle
		if _, err := apiServices.Update(ctx, apiService, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			return m.explainAPIService(name, err)
		} else if err != nil {
			return fmt.Errorf("somebody else changes the APIService %s: %w", name, err)
		}
	}
	return nil
}

func (m *Manager) explainAPIService(name string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("allow the user of this server to get and update the APIService %s, whose caBundle it keeps: %w", name, err)
	}
	return err
}

// syncCertificate makes a certificate for this replica when it needs one.
func (m *Manager) syncCertificate(a ca) error {
	now := m.authority.clock.Now()
	if current := m.certificate.Load(); current != nil && a.current.issued(current) && now.Before(current.part(2, 3)) {
		return nil
	}
	host := m.config.Service + "." + m.config.Namespace + ".svc"
	pair, err := issue(a.current, subject{host, []string{host, "localhost"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, now, m.config.Validity)
	if err != nil {
		return err
	}
	m.certificate.Store(pair)
	klog.InfoS("This server has a new certificate", "expires", pair.certificate.NotAfter)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, listener := range m.listeners {
		listener.Enqueue()
	}
	return nil
}
