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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// TestTheTableOfChecks requires that checks need only checks that run before them.
func TestTheTableOfChecks(t *testing.T) {
	var names []string
	for _, check := range checks() {
		require.NotContains(t, names, check.name)
		require.Subset(t, names, check.needs, "%s needs a check that does not run before it", check.name)
		names = append(names, check.name)
	}
}

func TestCheckRegistered(t *testing.T) {
	server := &apiregistrationv1.ServiceReference{Namespace: "default", Name: "server"}
	definition := map[string]string{cluster.ManagedLabel: "true"}
	const fix = `move the objects by "migrate plan" and "migrate run"`
	for name, test := range map[string]struct {
		labels  map[string]string
		service *apiregistrationv1.ServiceReference
		want    Finding
	}{
		"by a server":                                 {nil, server, ok("1 version are registered")},
		"by a CustomResourceDefinition":               {definition, nil, failure("kube-apiserver serves v1.example.com itself, from CustomResourceDefinitions", fix)},
		"by an apply over a CustomResourceDefinition": {definition, server, failure("kube-apiserver is about to reset v1.example.com, or delete it, because of the label kube-aggregator.kubernetes.io/automanaged of a CustomResourceDefinition", fix)},
	} {
		t.Run(name, func(t *testing.T) {
			e := &examination{
				Config: Config{Groups: []registry.Group{{Name: "example.com", Install: func(scheme *runtime.Scheme) {
					metav1.AddToGroupVersion(scheme, schema.GroupVersion{Group: "example.com", Version: "v1"})
				}}}},
				aggregator: fake.NewClientset(&apiregistrationv1.APIService{
					ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com", Labels: test.labels},
					Spec:       apiregistrationv1.APIServiceSpec{Service: test.service},
				}),
			}
			e.findRegistration(t.Context())
			got := e.checkRegistered(t.Context())
			require.Len(t, got, 1)
			require.Equal(t, test.want.Status, got[0].Status)
			require.Equal(t, test.want.Cause, got[0].Cause)
			require.True(t, strings.HasPrefix(got[0].Fix, test.want.Fix), got[0].Fix)
		})
	}
}

// The existing APIServices tell the versions of a group that CustomResourceDefinitions define.
func TestDefinedGroups(t *testing.T) {
	service := func(name, group string, server *apiregistrationv1.ServiceReference) *apiregistrationv1.APIService {
		return &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: name + "." + group},
			Spec:       apiregistrationv1.APIServiceSpec{Group: group, Version: name, Service: server},
		}
	}
	server := &apiregistrationv1.ServiceReference{Namespace: "default", Name: "server"}
	e := &examination{
		Config: Config{Defined: []string{"a.example.com", "b.example.com", "c.example.com"}},
		allGroups: func() (*apidiscoveryv2.APIGroupDiscoveryList, error) {
			things := apidiscoveryv2.APIResourceDiscovery{Resource: "things", Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status"}}}
			return &apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{{
				ObjectMeta: metav1.ObjectMeta{Name: "a.example.com"}, Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{things}}},
			}}}, nil
		},
		aggregator: fake.NewClientset(service("v1", "a.example.com", server), service("v2", "a.example.com", server),
			service("v1", "b.example.com", nil), service("v1", "other.example.com", server)),
	}
	e.findRegistration(t.Context())
	found := e.checkRegistered(t.Context())
	var causes []string
	for _, finding := range found {
		require.Equal(t, Warning, finding.Status, "groups are examined before they are moved, too")
		causes = append(causes, finding.Cause)
	}
	want := []string{
		"no CustomResourceDefinition defines a version of c.example.com",
		"kube-apiserver serves v1.b.example.com itself, from CustomResourceDefinitions",
	}
	require.Equal(t, want, causes)
	require.Len(t, e.apiServices, 2)
	require.Equal(t, []string{"things", "things/status"}, e.resources["a.example.com"])
	require.False(t, e.owns("other.example.com"))
}

// A missing permission skips a check, and any other error fails it.
func TestFailedChecks(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want Finding
	}{
		"a user who may not look": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, "v1.example.com", errors.New("no")),
			skipped(`the APIService v1.example.com can't be read by this user (apiservices "v1.example.com" is forbidden: no)`),
		},
		"anything else": {
			errors.New("closed"),
			failure("the APIService v1.example.com can't be read (closed)", "try again, and see the log of kube-apiserver if that does not help"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("get", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
			e := &examination{aggregator: client, Config: Config{Groups: []registry.Group{{Name: "example.com", Install: func(scheme *runtime.Scheme) {
				metav1.AddToGroupVersion(scheme, schema.GroupVersion{Group: "example.com", Version: "v1"})
			}}}}}
			e.findRegistration(t.Context())
			got := e.runOne(t.Context(), check{run: (*examination).checkRegistered}, nil)
			require.Equal(t, []Finding{test.want}, got)
		})
	}
}

// Servers take a front proxy's word. So users must not have certificates of its authority.
func TestCheckRequestHeaders(t *testing.T) {
	const fix = "start kube-apiserver with --requestheader-client-ca-file, --requestheader-allowed-names and --proxy-client-cert-file"
	authority := func(name string) string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		certificate, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
		require.NoError(t, err)
		encoded, err := certutil.EncodeCertificates(certificate)
		require.NoError(t, err)
		return string(encoded)
	}
	users, proxies := authority("users"), authority("proxies")
	for name, test := range map[string]struct {
		proxies, names string
		want           Finding
	}{
		"an authority of its own":          {proxies, "", ok("servers can know kube-apiserver's front proxy")},
		"that of users, and a name":        {users, `["front-proxy-client"]`, ok("servers can know kube-apiserver's front proxy")},
		"no authority":                     {"", "", failure("there is no request-header CA, so that servers do not know kube-apiserver's front proxy, and refuse what it forwards", fix)},
		"that of users":                    {users, "", failure("the request-header CA is a client CA, too, and no names are required, so that every user with a certificate can be anybody to servers", fix)},
		"that of users, and an empty list": {users, "[]", failure("the request-header CA is a client CA, too, and no names are required, so that every user with a certificate can be anybody to servers", fix)},
	} {
		t.Run(name, func(t *testing.T) {
			e := &examination{kube: kubefake.NewClientset(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: authenticationConfig},
				Data:       map[string]string{"client-ca-file": users, "requestheader-client-ca-file": test.proxies, "requestheader-allowed-names": test.names},
			})}
			got := e.checkRequestHeaders(t.Context())
			require.Len(t, got, 1)
			got[0].Command = ""
			require.Equal(t, test.want, got[0])
		})
	}
}

func TestSkew(t *testing.T) {
	for name, test := range map[string]struct {
		info version.Info
		want string
	}{
		"the same":           {version.Info{GitVersion: "v1.37.4"}, ""},
		"of a distribution":  {version.Info{GitVersion: "v1.34.9-gke.100+abc"}, ""},
		"the next":           {version.Info{GitVersion: "v1.38.0-rc.1"}, ""},
		"too old":            {version.Info{GitVersion: "v1.33.9"}, "kube-apiserver is 1.33, and this server is made for 1.37, and at most 3 minor releases older: upgrade the cluster, or install an older version of this server"},
		"too new":            {version.Info{GitVersion: "v1.39.0"}, "kube-apiserver is 1.39, and this server is made for 1.37, and at most 1 minor release newer: install a newer version of this server"},
		"another generation": {version.Info{GitVersion: "v2.37.0"}, "kube-apiserver is 2.37, and this server is made for 1.37, and at most 1 minor release newer: install a newer version of this server"},
		"that emulates":      {version.Info{GitVersion: "v1.39.0", EmulationMajor: "1", EmulationMinor: "38"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			theirs, err := effectiveVersion(test.info)
			require.NoError(t, err)
			got := ""
			if err := skew(utilversion.MustParse("1.37"), theirs); err != nil {
				got = err.Error()
			}
			require.Equal(t, test.want, got)
		})
	}
	_, err := effectiveVersion(version.Info{GitVersion: "unknown"})
	require.Error(t, err)
}

// A server may list Services, since it looks up the Services of webhooks, but not their endpoints.
func TestResolveAsTheServer(t *testing.T) {
	service := func(clusterIP string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "webhook"},
			Spec: corev1.ServiceSpec{ClusterIP: clusterIP, Selector: map[string]string{"app": "webhook"}, Ports: []corev1.ServicePort{
				{Name: "https", Port: 443, TargetPort: intstr.FromString("https")},
			}},
		}
	}
	for name, test := range map[string]struct {
		service *corev1.Service
		denied  []string
		want    []string
		err     string
	}{
		"no pods":                 {service("10.0.0.1"), []string{"get services", "list pods", "list endpointslices"}, []string{"10.0.0.1:443"}, ""},
		"no endpoints":            {service("10.0.0.1"), []string{"get services", "list endpointslices"}, []string{"10.0.0.1:443"}, ""},
		"an address of version 6": {service("fd00::1"), []string{"get services", "list pods"}, []string{"[fd00::1]:443"}, ""},
		"no address":              {service("None"), []string{"list pods"}, nil, `pods is forbidden: no`},
		"no services":             {service("10.0.0.1"), []string{"list services"}, nil, `services is forbidden: no`},
		"all":                     {service("10.0.0.1"), nil, nil, "no pod matches the selector app=webhook of the Service default/webhook: check the labels of the pods, and the Deployment that is to create them"},
	} {
		t.Run(name, func(t *testing.T) {
			client := kubefake.NewClientset(test.service)
			for _, denied := range test.denied {
				verb, resource, _ := strings.Cut(denied, " ")
				client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
				})
			}
			e := &examination{kube: client}
			got, err := e.resolve(t.Context(), newBackend("default", "webhook", nil))
			require.Equal(t, test.want, got)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.err)
			}
		})
	}
}

func TestCheckPriority(t *testing.T) {
	const waiting = "wait in kube-apiserver behind the requests that wait for them, so that many of these can fail at once"
	account := flowcontrolv1.Subject{Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "kitchen", Name: "apiserver"}}
	other := flowcontrolv1.Subject{Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "cellar", Name: "*"}}
	namespace := flowcontrolv1.Subject{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: "system:serviceaccounts:kitchen"}}
	user := flowcontrolv1.Subject{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "system:serviceaccount:kitchen:apiserver"}}
	masters := flowcontrolv1.Subject{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: "system:masters"}}
	everybody := flowcontrolv1.Subject{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: "*"}}
	flow := func(name string, precedence int32, level string, subject flowcontrolv1.Subject, resources ...string) *flowcontrolv1.FlowSchema {
		return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         precedence,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{subject},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io", "authorization.k8s.io"}, Resources: resources, ClusterScope: true,
				}},
			}},
		}}
	}
	const reviews, tokens = "subjectaccessreviews", "tokenreviews"
	low := flow("service-accounts", 9000, "workload-low", everybody, "*")
	for name, test := range map[string]struct {
		schemas []runtime.Object
		want    string
	}{
		"of the service account": {[]runtime.Object{low, flow("reviews", 100, "exempt", account, reviews, tokens)}, ""},
		"of its namespace":       {[]runtime.Object{low, flow("reviews", 100, "exempt", namespace, reviews, tokens)}, ""},
		"of its user":            {[]runtime.Object{low, flow("reviews", 100, "exempt", user, "*")}, ""},
		"in two":                 {[]runtime.Object{low, flow("a", 100, "exempt", account, tokens), flow("b", 200, "exempt", account, reviews)}, ""},
		"none":                   {nil, "subjectaccessreviews.authorization.k8s.io"},
		"not exempt":             {[]runtime.Object{low}, "subjectaccessreviews.authorization.k8s.io"},
		"of administrators":      {[]runtime.Object{low, flow("exempt", 1, "exempt", masters, "*")}, "subjectaccessreviews.authorization.k8s.io"},
		"of another namespace":   {[]runtime.Object{low, flow("reviews", 100, "exempt", other, reviews, tokens)}, "subjectaccessreviews.authorization.k8s.io"},
		"without tokens":         {[]runtime.Object{low, flow("reviews", 100, "exempt", account, reviews)}, "tokenreviews.authentication.k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &examination{
				Config:       Config{Namespace: "kitchen", ServiceAccount: "apiserver"},
				kube:         kubefake.NewClientset(test.schemas...),
				registration: registration{apiServices: []*apiregistrationv1.APIService{{}}},
			}
			found := e.checkPriority(t.Context())
			want := ok("kube-apiserver answers reviews before anything else")
			if test.want != "" {
				want = warning(test.want+" that system:serviceaccount:kitchen:apiserver creates "+waiting, "install a FlowSchema that lets them pass, as the manifests of this server do")
				want = want.by(e.flowSchema())
			}
			require.Equal(t, []Finding{want}, found)
		})
	}
}

func TestExpiry(t *testing.T) {
	until := func(days int) *x509.Certificate {
		return &x509.Certificate{NotAfter: time.Unix(0, 0).AddDate(0, 0, days)}
	}
	for name, test := range map[string]struct {
		chains [][]*x509.Certificate
		want   *x509.Certificate
	}{
		"of a certificate":                    {[][]*x509.Certificate{{until(10), until(100)}}, until(10)},
		"of an authority":                     {[][]*x509.Certificate{{until(10), until(5)}}, until(5)},
		"of an authority that has a follower": {[][]*x509.Certificate{{until(10), until(5)}, {until(10), until(100)}}, until(10)},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want.NotAfter, expiry(test.chains).NotAfter)
		})
	}
}

func TestRenewalDue(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		life, left time.Duration
		want       bool
	}{
		"a day, after two thirds":     {24 * time.Hour, 8 * time.Hour, false},
		"a day, nearly over":          {24 * time.Hour, 4 * time.Hour, true},
		"ten years, with a year left": {10 * 365 * 24 * time.Hour, 365 * 24 * time.Hour, false},
		"ten years, with weeks left":  {10 * 365 * 24 * time.Hour, 29 * 24 * time.Hour, true},
		"a day, over":                 {24 * time.Hour, -time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			end := now.Add(test.left)
			require.Equal(t, test.want, renewalDue(&x509.Certificate{NotBefore: end.Add(-test.life), NotAfter: end}, now))
		})
	}
}

// A cluster can't start without an aggregated server that has the parameters of a policy for
// Leases.
func TestDependsOn(t *testing.T) {
	t.Parallel()
	fail, ignore := admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	kind := func(version string) *admissionregistrationv1.ParamKind {
		return &admissionregistrationv1.ParamKind{APIVersion: version, Kind: "Thing"}
	}
	for name, test := range map[string]struct {
		parameters *admissionregistrationv1.ParamKind
		failure    *admissionregistrationv1.FailurePolicyType
		groups     []string
		want       bool
	}{
		"for another group":            {kind("example.com/v1"), &fail, []string{"coordination.k8s.io"}, true},
		"by default":                   {kind("example.com/v1"), nil, []string{"coordination.k8s.io"}, true},
		"for all groups":               {kind("example.com/v1"), &fail, []string{"*"}, true},
		"for another group, too":       {kind("example.com/v1"), &fail, []string{"example.com", ""}, true},
		"for the parameters' group":    {kind("example.com/v1"), &fail, []string{"example.com"}, false},
		"that may be ignored":          {kind("example.com/v1"), &ignore, []string{"coordination.k8s.io"}, false},
		"parameters of kube-apiserver": {kind("v1"), &fail, []string{"coordination.k8s.io"}, false},
		"no parameters":                {nil, &fail, []string{"coordination.k8s.io"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: test.groups}}
			policy := admission.Policy{Parameters: test.parameters, FailurePolicy: test.failure, Rules: []admissionregistrationv1.RuleWithOperations{rule}}
			require.Equal(t, test.want, dependsOn(policy, sets.New("example.com")))
		})
	}
}
