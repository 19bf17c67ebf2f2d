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

package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const (
	// connectTimeout bounds every connection: this machine may not reach the addresses of pods.
	connectTimeout = 3 * time.Second
	// renewalFraction divides a certificate's life: by its last fifth, it should have been renewed.
	// Servers renew after two thirds.
	renewalFraction = 5
	// renewalTime is enough to renew a certificate by hand.
	renewalTime = 30 * 24 * time.Hour
)

// unreachable is the error of an address that can't be reached from here. Others may reach it.
type unreachable struct{ error }

// checkCertificate checks that kube-apiserver trusts the certificates that the server serves.
func (e *examination) checkCertificate(ctx context.Context) (results []Finding) {
	for _, b := range e.backends() {
		results = append(results, e.checkBackend(ctx, b)...)
	}
	return results
}

func (e *examination) checkBackend(ctx context.Context, b backend) (results []Finding) {
	check := e.checkServed
	if e.foreign {
		check = e.checkBundle
	}
	var expires time.Time
	for _, trust := range e.trusts(b) {
		if trust.anybody {
			results = append(results, warning(listed(trust.apiServices)+" trusts any server, since insecureSkipTLSVerify is set", "set caBundle instead").by(show(trust.apiServices)))
			continue
		}
		found, end := check(ctx, b, trust)
		results = append(results, found...)
		if expires.IsZero() || !end.IsZero() && end.Before(expires) {
			expires = end
		}
	}
	if expires.IsZero() {
		return orOK(results, "kube-apiserver trusts %s, by the certificate authorities of its machine", b)
	}
	return orOK(results, "kube-apiserver trusts %s until %s", b, date(expires))
}

// checkServed connects to the server, and returns when the first of its certificates expires.
func (e *examination) checkServed(ctx context.Context, b backend, trust *trust) (results []Finding, end time.Time) {
	addresses := []string{e.Address}
	if e.Address == "" {
		var err error
		if addresses, err = e.resolve(ctx, b); err != nil {
			return unread(b.String(), err), end
		}
	}
	for _, address := range addresses {
		state, err := connect(ctx, nil, address, b.host(), []byte(trust.bundle), "caBundle of "+listed(trust.apiServices))
		if away := (unreachable{}); errors.As(err, &away) {
			result := explain(address, Failure, err)
			result.Fix += ", or name by --server-address where a forwarded port leads to it"
			return append(results, result), end
		}
		if err != nil {
			results = append(results, explain(address, Failure, err))
			continue
		}
		first := expiry(state.VerifiedChains)
		if renewalDue(first, time.Now()) {
			results = append(results, warning(fmt.Sprintf("the certificate %q that %s serves, or one above it, %s", first.Subject, address, expiring(first.NotAfter)), "renew it"))
		}
		if end.IsZero() || first.NotAfter.Before(end) {
			end = first.NotAfter
		}
	}
	return results, end
}

// trust is the trust in certificates that some APIServices have in common.
type trust struct {
	bundle      string
	anybody     bool
	apiServices []*apiregistrationv1.APIService
}

// trusts returns the trust of the APIServices that lead to a Service.
func (e *examination) trusts(b backend) []*trust {
	var trusts []*trust
	for _, apiService := range e.leadingTo(b) {
		spec := apiService.Spec
		i := slices.IndexFunc(trusts, func(known *trust) bool {
			return known.bundle == string(spec.CABundle) && known.anybody == spec.InsecureSkipTLSVerify
		})
		if i < 0 {
			i, trusts = len(trusts), append(trusts, &trust{bundle: string(spec.CABundle), anybody: spec.InsecureSkipTLSVerify})
		}
		trusts[i].apiServices = append(trusts[i].apiServices, apiService)
	}
	return trusts
}

// connect opens a connection, directly if there is no dialer, and closes it. The certificate must
// be for the host, and of a certificate authority in the bundle. If the bundle is empty, this
// machine's certificate authorities count. The error is a problem, or unreachable.
func connect(ctx context.Context, dial utilnet.DialFunc, address, host string, bundle []byte, bundleName string) (tls.ConnectionState, error) {
	config, err := trusting(bundle, bundleName)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	config.ServerName = host
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	direct := dial == nil
	if direct {
		dial = new(net.Dialer).DialContext
	}
	raw, err := dial(ctx, "tcp", address)
	if direct && errors.Is(err, syscall.ECONNREFUSED) {
		return tls.ConnectionState{}, &problem{"nobody listens at " + address, "see whether the server runs, and the log of one that does not", ""}
	}
	if err != nil {
		return tls.ConnectionState{}, unreachable{err}
	}
	defer func() { _ = raw.Close() }()
	connection := tls.Client(raw, config)
	err = connection.HandshakeContext(ctx)
	if untrusted := (*tls.CertificateVerificationError)(nil); errors.As(err, &untrusted) {
		return tls.ConnectionState{}, untrustedProblem(untrusted, address, host, bundleName)
	}
	if err != nil {
		return tls.ConnectionState{}, &problem{fmt.Sprintf("%s does not speak TLS (%v)", address, err), "see what listens there", ""}
	}
	return connection.ConnectionState(), nil
}

// trusting returns a configuration that trusts the certificate authorities of the bundle, or this
// machine's if it is empty.
func trusting(bundle []byte, bundleName string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, &problem{"there is no certificate in " + bundleName, "put the server's certificate authority into it, in PEM format", ""}
		}
	}
	return config, nil
}

func untrustedProblem(untrusted *tls.CertificateVerificationError, address, host, bundleName string) *problem {
	return &problem{fmt.Sprintf("the certificate %q that %s serves can't be trusted (%v)", untrusted.UnverifiedCertificates[0].Subject, address, untrusted.Err), trustFix(untrusted.Err, host, bundleName), ""}
}

func trustFix(err error, host, bundleName string) string {
	if wrongHost := (x509.HostnameError{}); errors.As(err, &wrongHost) {
		return "issue one for " + host
	}
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "renew it, or the clock of this machine is wrong"
	}
	return "put the certificate authority that issued it into " + bundleName
}

// expiry returns the certificate that expires first in the chain that lasts longest.
func expiry(chains [][]*x509.Certificate) *x509.Certificate {
	byEnd := func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }
	var firsts []*x509.Certificate
	for _, chain := range chains {
		firsts = append(firsts, slices.MinFunc(chain, byEnd))
	}
	return slices.MaxFunc(firsts, byEnd)
}

// expiring returns a predicate with the time.
func expiring(end time.Time) string {
	if end.Before(time.Now()) {
		return "has expired on " + date(end)
	}
	return "expires on " + date(end)
}

// renewalDue reports whether a certificate should have been renewed by now.
func renewalDue(certificate *x509.Certificate, now time.Time) bool {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotAfter.Sub(now) < min(life/renewalFraction, renewalTime)
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
