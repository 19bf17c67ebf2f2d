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
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics/legacyregistry"
)

// listened is a certificate that tells its listeners when it changes.
type listened struct {
	dynamiccertificates.CertKeyContentProvider
	listeners []dynamiccertificates.Listener
}

func (l *listened) AddListener(listener dynamiccertificates.Listener) {
	l.listeners = append(l.listeners, listener)
}

// The metric of a server that has stopped stays away, even if its certificate changes.
func TestExpirationEndsWithTheServer(t *testing.T) {
	const server = "expires"
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	static, err := dynamiccertificates.NewStaticCertKeyContent("serving", certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	changing := &listened{CertKeyContentProvider: static}
	stop, err := watchExpiration(server, changing)
	if err != nil {
		t.Fatal(err)
	}
	if got := expirations(t, server); len(got) != 1 || time.Unix(int64(got[0]), 0).Before(time.Now()) {
		t.Errorf("got %v, want one time in the future", got)
	}
	stop()
	for _, listener := range changing.listeners {
		listener.Enqueue()
	}
	if got := expirations(t, server); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
}

// expirations returns the values of the metric for a server.
func expirations(t *testing.T, server string) (values []float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "apiserver_serving_certificate_expiration_timestamp_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == server {
				values = append(values, metric.GetGauge().GetValue())
			}
		}
	}
	return values
}
