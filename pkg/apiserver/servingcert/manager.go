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

package servingcert

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"
)

// Config says where the authority is kept and what for.
type Config struct {
	// Namespace and Secret are where the authority is kept.
	Namespace, Secret string
	// Service is the name, in the same namespace, under which kube-apiserver reaches
	// the server.
	Service string
	// APIServices are the names of those that shall trust the authority. One that
	// does not exist yet gets it when it does.
	APIServices []string
	// AuthorityValidity and Validity are how long an authority and a certificate are
	// good for. They are renewed after two thirds of it.
	AuthorityValidity, Validity time.Duration
	// Clock is the real one unless it is set.
	Clock clock.Clock
}

// Validate returns what is wrong with the durations.
func (c Config) Validate() error {
	if c.Validity <= 0 || c.AuthorityValidity < 2*c.Validity {
		return fmt.Errorf("the validity of a certificate (%s) must be above 0, and that of its authority (%s) at least twice as long", c.Validity, c.AuthorityValidity)
	}
	return nil
}

// Manager is the certificate of one replica.
type Manager struct {
	config      Config
	kube        kubernetes.Interface
	aggregator  aggregator.Interface
	certificate atomic.Pointer[servingCertificate]

	mu        sync.Mutex
	listeners []dynamiccertificates.Listener
}

type servingCertificate struct {
	pair      *keyPair
	cert, key []byte
}

var (
	_ dynamiccertificates.CertKeyContentProvider = &Manager{}
	_ dynamiccertificates.ControllerRunner       = &Manager{}
)

// New returns a manager that has no certificate until Sync was successful.
func New(config Config, cluster *rest.Config) (*Manager, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	kube, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, err
	}
	aggregator, err := aggregator.NewForConfig(cluster)
	if err != nil {
		return nil, err
	}
	return &Manager{config: config, kube: kube, aggregator: aggregator}, nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (m *Manager) Name() string {
	return fmt.Sprintf("serving-cert::secret/%s/%s", m.config.Namespace, m.config.Secret)
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (m *Manager) CurrentCertKeyContent() (cert, key []byte) {
	if current := m.certificate.Load(); current != nil {
		return current.cert, current.key
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

// Run renews in time, until the context ends. While the cluster can't be reached it
// goes on with what it has.
func (m *Manager) Run(ctx context.Context, _ int) {
	interval := min(max(m.config.Validity/100, time.Second), 10*time.Second)
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := m.Sync(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "The serving certificate can't be looked after", "retry", interval)
		}
	}, interval, 0.1, true)
}

// Sync takes the step that is due: for the authority, for the APIServices, and for
// the certificate of this replica. An error says what to do about it.
func (m *Manager) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	authority, err := m.syncAuthority(ctx)
	if err != nil {
		return err
	}
	return m.syncCertificate(authority)
}

// syncAuthority returns the authority when the APIServices trust it.
func (m *Manager) syncAuthority(ctx context.Context) (authority, error) {
	for {
		secret, err := m.secret(ctx)
		if err != nil {
			return authority{}, err
		}
		a, err := decode(secret)
		if err != nil {
			return authority{}, fmt.Errorf("the Secret %s/%s can't be used; delete it, and a new certificate authority is made: %w", m.config.Namespace, m.config.Secret, err)
		}
		if a.current != nil {
			if err := m.publish(ctx, a.bundle()); err != nil {
				return authority{}, err
			}
		}
		next, changed, err := a.advance(m.config.Clock.Now(), m.config.AuthorityValidity)
		if err != nil || !changed {
			return a, err
		}
		if err := m.save(ctx, secret, next); err != nil {
			return authority{}, err
		}
	}
}

// secret returns the Secret, or a new one if it does not exist.
func (m *Manager) secret(ctx context.Context) (*corev1.Secret, error) {
	secret, err := m.kube.CoreV1().Secrets(m.config.Namespace).Get(ctx, m.config.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.config.Namespace, Name: m.config.Secret}}, nil
	}
	return secret, m.explain(err)
}

// save writes the Secret, unless another replica was first.
func (m *Manager) save(ctx context.Context, secret *corev1.Secret, a authority) error {
	if err := a.encode(secret); err != nil {
		return err
	}
	var err error
	if secret.ResourceVersion == "" {
		_, err = m.kube.CoreV1().Secrets(m.config.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = m.kube.CoreV1().Secrets(m.config.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return m.explain(err)
}

func (m *Manager) explain(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("allow the user of this server to create Secrets in %s, and to get and update %s, or give it a certificate by --tls-cert-file and --tls-private-key-file: %w", m.config.Namespace, m.config.Secret, err)
	}
	return err
}

// publish makes the APIServices trust the bundle.
func (m *Manager) publish(ctx context.Context, bundle []byte) error {
	apiServices := m.aggregator.ApiregistrationV1().APIServices()
	for _, name := range m.config.APIServices {
		apiService, err := apiServices.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue // It is installed later.
		case err != nil:
			return m.explainAPIService(name, err)
		case apiService.Spec.Service == nil || apiService.Spec.InsecureSkipTLSVerify || bytes.Equal(apiService.Spec.CABundle, bundle):
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
func (m *Manager) syncCertificate(a authority) error {
	now := m.config.Clock.Now()
	if current := m.certificate.Load(); current != nil && a.current.issued(current.pair) && now.Before(current.pair.part(2, 3)) {
		return nil
	}
	host := m.config.Service + "." + m.config.Namespace + ".svc"
	pair, err := issue(a.current, host, []string{host, "localhost"}, now, m.config.Validity)
	if err != nil {
		return err
	}
	key, err := pair.keyPEM()
	if err != nil {
		return err
	}
	m.certificate.Store(&servingCertificate{pair: pair, cert: pair.certPEM(), key: key})
	klog.InfoS("This server has a new certificate", "expires", pair.certificate.NotAfter)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, listener := range m.listeners {
		listener.Enqueue()
	}
	return nil
}
