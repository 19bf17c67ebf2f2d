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

package authentication

import (
	"context"
	"crypto/x509"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
)

// A server once accepted requests before it had read the client CAs.
func TestPrimedCA(t *testing.T) {
	front, users, other := newCA(t, "front-proxy", nil).certificate, newCA(t, "users", nil).certificate, newCA(t, "other", nil).certificate
	for name, test := range map[string]struct {
		want, read []*x509.Certificate
		complete   bool
	}{
		"all":           {[]*x509.Certificate{front, users}, []*x509.Certificate{users, front}, true},
		"more":          {[]*x509.Certificate{front}, []*x509.Certificate{users, front}, true},
		"none wanted":   {nil, nil, true},
		"none read":     {[]*x509.Certificate{front}, nil, false},
		"one missing":   {[]*x509.Certificate{front, users}, []*x509.Certificate{front}, false},
		"another read":  {[]*x509.Certificate{front}, []*x509.Certificate{other}, false},
		"others beside": {[]*x509.Certificate{front, users}, []*x509.Certificate{front, other}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &slowCA{read: test.read}
				serving := &genericapiserver.SecureServingInfo{ClientCA: source}
				AwaitClientCAs(serving, test.want)
				primed := serving.ClientCA.(dynamiccertificates.ControllerRunner)

				err := primed.RunOnce(t.Context())
				require.Equal(t, test.complete, err == nil, "got error %v", err)
				primed.Run(t.Context(), 1)
				require.LessOrEqual(t, source.runs.Load(), int32(1), "the source was run more than once")
				time.Sleep(sourceTime)
			})
		})
	}
}

func TestPrimeWithoutServing(t *testing.T) {
	var serving genericapiserver.SecureServingInfo
	AwaitClientCAs(nil, nil)
	AwaitClientCAs(&serving, nil)
	require.Nil(t, serving.ClientCA, "a server that knows no clients by certificate")
}

// sourceTime is how long the source needs to read its certificates.
const sourceTime = primeTimeout / 2

// slowCA has its certificates some time after it is run.
type slowCA struct {
	dynamiccertificates.CAContentProvider
	read    []*x509.Certificate
	runs    atomic.Int32
	content atomic.Pointer[[]byte]
}

func (*slowCA) RunOnce(context.Context) error { return nil }

func (s *slowCA) Run(context.Context, int) {
	s.runs.Add(1)
	time.Sleep(sourceTime)
	bundle, _ := certutil.EncodeCertificates(s.read...)
	s.content.Store(&bundle)
}

func (s *slowCA) CurrentCABundleContent() []byte {
	if content := s.content.Load(); content != nil {
		return *content
	}
	return nil
}
