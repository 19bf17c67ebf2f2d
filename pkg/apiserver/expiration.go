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
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

//nolint:gochecknoglobals // As Kubernetes declares its metrics.
var expiration = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "apiserver",
	Subsystem:      "serving_certificate",
	Name:           "expiration_timestamp_seconds",
	Help:           "When the serving certificate of a server expires, in seconds since 1970.",
	StabilityLevel: metrics.ALPHA,
}, []string{"server"})

// reportExpiration keeps the metric of the certificate's expiration up to date.
func reportExpiration(server string, certificate dynamiccertificates.CertKeyContentProvider) {
	_ = legacyregistry.Register(expiration) // A process with several servers has it already.
	listener := expirationListener{server: server, certificate: certificate}
	listener.Enqueue()
	certificate.AddListener(listener)
}

type expirationListener struct {
	server      string
	certificate dynamiccertificates.CertKeyContentProvider
}

// Enqueue is called when there is a new certificate.
func (l expirationListener) Enqueue() {
	content, _ := l.certificate.CurrentCertKeyContent()
	// A certificate that can't be read is not served, and the serving code reports it.
	if certificates, err := cert.ParseCertsPEM(content); err == nil {
		expiration.WithLabelValues(l.server).Set(float64(certificates[0].NotAfter.Unix()))
	}
}
