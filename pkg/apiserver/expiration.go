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
	"k8s.io/component-base/metrics/legacyregistry"
)

var certificateExpiration = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace:      "apiserver",
	Subsystem:      "serving_certificate",
	Name:           "expiration_timestamp_seconds",
	Help:           "When the serving certificate expires, in seconds since 1970.",
	StabilityLevel: metrics.ALPHA,
})

var registerCertificateExpiration = sync.OnceFunc(func() { legacyregistry.MustRegister(certificateExpiration) })

// watchExpiration keeps the metric of when the certificate expires, wherever it
// comes from.
func watchExpiration(certificate dynamiccertificates.CertKeyContentProvider) {
	registerCertificateExpiration()
	listener := expirationListener{certificate}
	listener.Enqueue()
	certificate.AddListener(listener)
}

type expirationListener struct {
	certificate dynamiccertificates.CertKeyContentProvider
}

// Enqueue is called when there is a new certificate.
func (l expirationListener) Enqueue() {
	content, _ := l.certificate.CurrentCertKeyContent()
	// A certificate that can't be read is not served, and reported by who serves.
	if certificates, err := cert.ParseCertsPEM(content); err == nil {
		certificateExpiration.Set(float64(certificates[0].NotAfter.Unix()))
	}
}
