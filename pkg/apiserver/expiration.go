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

package apiserver

import (
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/gauges"
)

// watchExpiration keeps the metric of the certificate's expiration up to date until stop is
// called.
func watchExpiration(server string, certificate dynamiccertificates.CertKeyContentProvider) (stop func(), err error) {
	expiration, err := gauges.Shared(&metrics.GaugeOpts{
		Namespace:      "apiserver",
		Subsystem:      "serving_certificate",
		Name:           "expiration_timestamp_seconds",
		Help:           "When the serving certificate of a server expires, in seconds since 1970.",
		StabilityLevel: metrics.ALPHA,
	}, "server")
	if err != nil {
		return nil, err
	}
	listener := &expirationListener{server: server, certificate: certificate, expiration: expiration}
	listener.Enqueue()
	certificate.AddListener(listener)
	return listener.stop, nil
}

type expirationListener struct {
	server      string
	certificate dynamiccertificates.CertKeyContentProvider
	expiration  *metrics.GaugeVec

	mu      sync.Mutex
	stopped bool
}

// stop deletes the metric. The certificate can't forget a listener.
func (l *expirationListener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.expiration.Delete(map[string]string{"server": l.server})
}

// Enqueue is called when there is a new certificate.
func (l *expirationListener) Enqueue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	content, _ := l.certificate.CurrentCertKeyContent()
	// A certificate that can't be read is not served, and the serving code reports it.
	if certificates, err := cert.ParseCertsPEM(content); err == nil {
		l.expiration.WithLabelValues(l.server).Set(float64(certificates[0].NotAfter.Unix()))
	}
}
