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

// primedCA has the certificate authorities of clients before the server accepts
// its first connection. The library alone begins to read them from the cluster
// when it serves, and until it has, it takes everybody for a stranger, even
// kube-apiserver: a server that has just become ready would refuse requests.
// Upstream fault 32.
type primedCA struct {
	dynamiccertificates.CAContentProvider
	want []*x509.Certificate
}

var _ dynamiccertificates.ControllerRunner = primedCA{}

// AwaitClientCAs makes a server accept no connection before it has read these certificate
// certificate authorities of clients, which the cluster was found to trust.
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

// Run is called after RunOnce, which has started all there is to run.
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
