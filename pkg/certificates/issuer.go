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

package certificates

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
)

// IssuerConfig says which certificates an Issuer keeps.
type IssuerConfig struct {
	Namespace string
	// CASecret is the name of the Secret of the certificate authority.
	CASecret string
	// Certificates are the names of the certificates' Secrets, of the type kubernetes.io/tls, with
	// the hosts of each certificate. The name of the Secret is the common name in it.
	Certificates map[string][]string
	// WebhookConfigurations are the names of the MutatingWebhookConfigurations and
	// ValidatingWebhookConfigurations whose webhooks in the namespace shall trust the
	// certificate authority. One that does not exist is left out.
	WebhookConfigurations []string
	// CustomResourceDefinitions are the names of those whose conversion webhook, if it is in the
	// namespace, shall trust the certificate authority. One that does not exist is left out.
	CustomResourceDefinitions []string
	// Service is the name of a Service in the namespace, and APIServices a selector of labels. The
	// selected APIServices that lead to the Service shall trust the certificate authority. None do if
	// Service is empty.
	Service, APIServices string
	// PathSecret is the name of one of the Secrets in Certificates. It also keeps a random path,
	// which becomes part of the paths of all these webhooks: only kube-apiserver and the webhooks
	// know it. If it is empty, paths are left as they are.
	PathSecret string
	// CAValidity and Validity are how long the certificate authority and a certificate
	// are valid for. They are renewed after two thirds of it.
	CAValidity, Validity time.Duration
	// Clock is the real one unless it is set.
	Clock clock.PassiveClock
}

// Validate checks the durations.
func (c IssuerConfig) Validate() error { return validate(c.CAValidity, c.Validity) }

// Issuer keeps a certificate authority and its certificates in Secrets, for servers and clients that
// read them from files and trust no other. Few of them read the certificate authority's certificate
// again. So each has to be restarted before a new certificate authority takes over, which is after a
// twelfth of its life.
type Issuer struct {
	config    IssuerConfig
	authority keeper
}

// NewIssuer returns an issuer that keeps its Secrets in the cluster.
func NewIssuer(config IssuerConfig, cluster *rest.Config) (*Issuer, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	kube, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, err
	}
	owned := secrets{kube: kube, namespace: config.Namespace}
	return &Issuer{config, keeper{
		secrets:  owned,
		name:     config.CASecret,
		validity: config.CAValidity,
		clock:    config.Clock,
		// Each Secret gets the bundle together with its certificate.
		publish: func(ctx context.Context, bundle []byte) error {
			c := caller{namespace: config.Namespace, bundle: bundle}
			if config.PathSecret != "" {
				// A new path is published when the Secret has it.
				secret, err := owned.get(ctx, config.PathSecret)
				if err != nil {
					return err
				}
				c.path = string(secret.Data[pathKey])
			}
			for _, kept := range []struct {
				resource schema.GroupVersionResource
				names    []string
				endpoint string
			}{
				{admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), config.WebhookConfigurations, "/admit"},
				{admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"), config.WebhookConfigurations, "/validate"},
				{apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), config.CustomResourceDefinitions, "/convert"},
			} {
				for _, name := range kept.names {
					if err := c.setWebhooks(ctx, dynamicClient.Resource(kept.resource), name, kept.endpoint); err != nil {
						return fmt.Errorf("keeping the clientConfig of %s in %s, which this program's user must be allowed to get and update: %w", name, kept.resource.GroupResource(), err)
					}
				}
			}
			if config.Service == "" {
				return nil
			}
			if err := c.setAPIServices(ctx, dynamicClient, config.Service, config.APIServices); err != nil {
				return fmt.Errorf("keeping the caBundle of the APIServices that lead to the Service %s, which this program's user must be allowed to list and patch: %w", config.Service, err)
			}
			return nil
		},
	}}, nil
}

// pathKey is the key of the random path in a Secret.
const pathKey = "path"

// caller sets how kube-apiserver calls the webhooks in a namespace.
type caller struct {
	namespace string
	bundle    []byte
	// path is empty if paths are left as they are.
	path string
}

// setWebhooks changes the webhooks of a configuration, or of the conversions of a definition.
func (c caller) setWebhooks(ctx context.Context, client dynamic.ResourceInterface, name, endpoint string) error {
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	before := object.DeepCopy()
	webhooks, _ := object.Object["webhooks"].([]any)
	conversion, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "conversion", "webhook")
	for _, webhook := range append(webhooks, conversion) {
		webhook, _ := webhook.(map[string]any)
		config, _ := webhook["clientConfig"].(map[string]any)
		service, _ := config["service"].(map[string]any)
		if service["namespace"] != c.namespace {
			continue // Another instance's, or none in a cluster.
		}
		config["caBundle"] = base64.StdEncoding.EncodeToString(c.bundle)
		if c.path != "" {
			service["path"] = "/" + c.path + endpoint
		}
	}
	if equality.Semantic.DeepEqual(before, object) {
		return nil
	}
	_, err = client.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

// setAPIServices changes the APIServices that a selector finds and that lead to a Service.
func (c caller) setAPIServices(ctx context.Context, client dynamic.Interface, service, selector string) error {
	apiServices := client.Resource(apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"))
	list, err := apiServices.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	wanted := base64.StdEncoding.EncodeToString(c.bundle)
	for i := range list.Items {
		found := &list.Items[i]
		namespace, _, _ := unstructured.NestedString(found.Object, "spec", "service", "namespace")
		name, _, _ := unstructured.NestedString(found.Object, "spec", "service", "name")
		bundle, _, _ := unstructured.NestedString(found.Object, "spec", "caBundle")
		insecure, _, _ := unstructured.NestedBool(found.Object, "spec", "insecureSkipTLSVerify")
		if namespace != c.namespace || name != service || bundle == wanted || insecure {
			continue
		}
		// If it leads elsewhere by now, the patch fails, and is tried again.
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"caBundle":%q}}`, found.GetResourceVersion(), wanted)
		if _, err := apiServices.Patch(ctx, found.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w", found.GetName(), err)
		}
	}
	return nil
}

// Run renews certificates in time, until the context ends.
func (i *Issuer) Run(ctx context.Context) {
	repeat(ctx, i.config.Validity, "The certificates", i.Sync)
}

// Sync takes the steps that are due. An error says what to do about it.
func (i *Issuer) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	authority, err := i.authority.sync(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(i.config.Certificates)) {
		secret, err := i.authority.get(ctx, name)
		if err != nil {
			return err
		}
		changed, err := i.renew(secret, authority)
		if err != nil {
			return err
		}
		if !changed {
			continue
		}
		if err := i.authority.put(ctx, secret); err != nil {
			return err
		}
		klog.InfoS("Renewed the certificate, the certificate authorities to trust, or the path", "secret", klog.KObj(secret))
	}
	return nil
}

// renew puts a certificate, a bundle or a path that is due into a Secret.
func (i *Issuer) renew(secret *corev1.Secret, a ca) (changed bool, err error) {
	hosts := i.config.Certificates[secret.Name]
	now, bundle := i.config.Clock.Now(), a.bundle()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if secret.Name == i.config.PathSecret && len(secret.Data[pathKey]) == 0 {
		// kube-apiserver takes a path of DNS labels only.
		secret.Data[pathKey], changed = []byte(strings.ToLower(rand.Text())), true
	}
	// An unusable certificate is replaced.
	pair, err := parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err == nil && pair.key != nil && a.current.issued(pair) && slices.Equal(pair.certificate.DNSNames, hosts) && now.Before(pair.part(2, 3)) {
		if bytes.Equal(secret.Data[caCert], bundle) {
			return changed, nil
		}
		secret.Data[caCert] = bundle
		return true, nil
	}
	// Members of a cluster are clients of each other.
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(hosts) > 0 {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	if pair, err = issue(a.current, subject{secret.Name, hosts, usages}, now, i.config.Validity); err != nil {
		return false, err
	}
	if secret.Type == "" {
		secret.Type = corev1.SecretTypeTLS
	}
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], secret.Data[caCert] = pair.certPEM, pair.keyPEM, bundle
	return true, nil
}
