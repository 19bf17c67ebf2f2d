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
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
)

// primeTimeout bounds how long the first connection is kept waiting.
const primeTimeout = 10 * time.Second

// primedCA has read the client CAs before the server accepts its first connection. The
// library begins to read them only when it serves. Until then a server that is ready
// refuses every client certificate, even the one of kube-apiserver.
// Upstream fault 32.
type primedCA struct {
	dynamiccertificates.CAContentProvider
	want []*x509.Certificate
}

var _ dynamiccertificates.ControllerRunner = primedCA{}

// AwaitClientCAs delays connections until the client CAs are read. The cluster was found to
// trust those in want.
func AwaitClientCAs(serving *genericapiserver.SecureServingInfo, want []*x509.Certificate) {
	if serving != nil && serving.ClientCA != nil {
		serving.ClientCA = primedCA{serving.ClientCA, want}
	}
}

// RunOnce is called before connections are accepted.
func (p primedCA) RunOnce(ctx context.Context) error {
	controller, ok := p.CAContentProvider.(dynamiccertificates.ControllerRunner)
	if !ok {
		return nil
	}
	if err := controller.RunOnce(ctx); err != nil {
		return err
	}
	go controller.Run(ctx, 1)
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, primeTimeout, true,
		func(context.Context) (bool, error) { return p.complete(), nil })
	if err != nil {
		return fmt.Errorf("the certificate authorities of clients have not been read from the cluster yet, so that their requests are refused until they are: %w", err)
	}
	return nil
}

// Run does nothing: RunOnce has started everything.
func (p primedCA) Run(context.Context, int) {}

func (p primedCA) complete() bool {
	// An empty bundle is an error to the parser, and has none of them.
	have, _ := certutil.ParseCertsPEM(p.CurrentCABundleContent())
	for _, want := range p.want {
		if !slices.ContainsFunc(have, want.Equal) {
			return false
		}
	}
	return true
}

// OverlapError explains the risk of an overlap in the certificate authority of this subject,
// and the fix.
func OverlapError(subject string) error {
	return fmt.Errorf("the request-header CA and the client CA overlap in %q and no --requestheader-allowed-names are set, so that every user with a client certificate could act as any other: give kube-apiserver a front-proxy CA of its own, or both servers the allowed names", subject)
}

// Overlap reports whether a user's certificate could pass for one of a front proxy. That is so
// if the client CA has the key of a request-header CA, or is issued by one.
// Upstream fault 29.
func Overlap(requestHeader, client []*x509.Certificate) (subject string, ok bool) {
	roots := x509.NewCertPool()
	for _, ca := range requestHeader {
		roots.AddCert(ca)
	}
	for _, ca := range client {
		for _, front := range requestHeader {
			if bytes.Equal(ca.RawSubjectPublicKeyInfo, front.RawSubjectPublicKeyInfo) {
				return ca.Subject.String(), true
			}
		}
		if _, err := ca.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
			return ca.Subject.String(), true
		}
	}
	return "", false
}
