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
	"errors"
	"fmt"
	"slices"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	componentbasevalidation "k8s.io/component-base/config/validation"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
)

// Validate returns everything that is wrong, each error with its flag.
func (o CompletedOptions) Validate() []error {
	return slices.Concat(
		o.validateName(),
		o.validateBase(),
		o.validateEmbeddedEtcd(),
		o.validateStartup(),
		o.validateServingCert(),
		o.validateLimits(),
		o.validateEgress(),
		o.validateLeaderElection(),
		o.ServerRun.Validate(),
		o.Etcd.Validate(),
		o.SecureServing.Validate(),
		o.Bounds.Validate(),
		o.Authentication.Validate(),
		o.Authorization.Validate(),
		o.Audit.Validate(),
		o.Features.Validate(),
		o.CoreAPI.Validate(),
		o.Admission.Validate(),
		admission.ValidateFeatures(o.plugins, o.Admission, o.FeatureGate()),
		admission.ValidateConfigFile(o.Admission.ConfigFile, o.Admission.Plugins.Registered()),
		o.validateFiles(),
	)
}

func (o CompletedOptions) validateName() (errs []error) {
	for _, problem := range utilvalidation.IsDNS1123Label(o.name) {
		errs = append(errs, fmt.Errorf("the name of the server, %q, can't be that of a Service: %s", o.name, problem))
	}
	return errs
}

func (o CompletedOptions) validateBase() []error {
	if o.Base == nil {
		return nil
	}
	return o.Base.Validate()
}

func (o CompletedOptions) validateEmbeddedEtcd() []error {
	if !o.embeddedEtcd {
		return nil
	}
	errs := o.EmbeddedEtcd.Validate()
	transport := o.Etcd.StorageConfig.Transport
	for _, external := range []struct{ flag, value string }{
		{"etcd-cafile", transport.TrustedCAFile},
		{"etcd-certfile", transport.CertFile},
		{"etcd-keyfile", transport.KeyFile},
	} {
		if external.value != "" {
			errs = append(errs, fmt.Errorf("--%s is for an external etcd: set --etcd-servers too", external.flag))
		}
	}
	return errs
}

func (o CompletedOptions) validateStartup() (errs []error) {
	if o.StartupTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--startup-timeout must be above 0, not %s", o.StartupTimeout))
	}
	if o.Authentication.SkipInClusterLookup && o.Authentication.RequestHeader.ClientCAFile == "" {
		errs = append(errs, errors.New("--authentication-skip-lookup needs --requestheader-client-ca-file: without it no front proxy can assert an identity"))
	}
	return errs
}

func (o CompletedOptions) validateServingCert() (errs []error) {
	if o.ServingCert.Secret == "" {
		return nil
	}
	if o.Base != nil {
		errs = append(errs, errors.New("--serving-ca-secret can't be used by this server, since the APIServices that would have to trust the certificate authority are not known in advance: use --tls-cert-file and --tls-private-key-file"))
	}
	if o.SecureServing.ServerCert.CertKey.CertFile != "" {
		errs = append(errs, errors.New("--serving-ca-secret and --tls-cert-file exclude each other: set only one of them"))
	}
	for _, problem := range utilvalidation.IsDNS1123Subdomain(o.ServingCert.Secret) {
		errs = append(errs, fmt.Errorf("--serving-ca-secret %q: %s", o.ServingCert.Secret, problem))
	}
	for _, problem := range utilvalidation.IsDNS1123Label(o.ServingCert.Service) {
		errs = append(errs, fmt.Errorf("--serving-service %q: %s", o.ServingCert.Service, problem))
	}
	if err := o.ServingCert.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--serving-cert-validity or --serving-ca-validity: %w", err))
	}
	return errs
}

func (o CompletedOptions) validateLimits() (errs []error) {
	// Upstream fault 43.
	if o.Features.EnablePriorityAndFairness && o.ServerRun.MaxRequestsInFlight == 0 && o.ServerRun.MaxMutatingRequestsInFlight == 0 {
		errs = append(errs, errors.New("--max-requests-inflight and --max-mutating-requests-inflight must not both be 0, unless --enable-priority-and-fairness is false"))
	}
	// Upstream fault 42.
	if _, err := genericoptions.ParseWatchCacheSizes(o.Etcd.WatchCacheSizes); err != nil {
		errs = append(errs, fmt.Errorf("--watch-cache-sizes: %w", err))
	}
	return errs
}

func (o CompletedOptions) validateEgress() []error {
	// Upstream fault 40.
	if _, err := o.egress(); err != nil {
		return []error{fmt.Errorf("--egress-selector-config-file: %w", err)}
	}
	return nil
}

func (o CompletedOptions) validateLeaderElection() (errs []error) {
	for _, err := range componentbasevalidation.ValidateLeaderElectionConfiguration(&o.LeaderElection, nil) {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration, or another flag of leader election: %w", err))
	}
	return errs
}

// validateFiles returns the errors of files that k8s.io/apiserver reads only after everything
// that the server waits for.
func (o CompletedOptions) validateFiles() (errs []error) {
	_, tracing := o.tracingConfiguration()
	for _, err := range []error{o.storageConfig().ValidateEncryption(), o.validateAudit(), tracing} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
