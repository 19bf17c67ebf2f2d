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

// Package e2e tests the bakery behind a real kube-apiserver.
package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"

	bakeryv1 "example.com/bakery/apis/bakery/v1"
	bakeryv1alpha1 "example.com/bakery/apis/bakery/v1alpha1"
	"example.com/bakery/generated/clientset/versioned"
)

var cp *controlplane.ControlPlane

func TestMain(m *testing.M) {
	config := controlplane.Config{}
	config.APIServer.Package = "example.com/bakery"
	controlplane.Main(m, &cp, config)
}

// TestBread writes a bread in one version, and reads it in the other. The controller bakes it, the plugin keeps its
// shelf for it, and tags and functions validate it.
func TestBread(t *testing.T) {
	clients := versioned.NewForConfigOrDie(cp.RESTConfig())
	breads := clients.BakeryV1().Breads("default")
	rye := &bakeryv1alpha1.Bread{ObjectMeta: metav1.ObjectMeta{Name: "rye"}}
	rye.Spec.Shelf, rye.Spec.Flours = "top", map[string]int32{"rye": 60, "wheat": 40}
	if _, err := clients.BakeryV1alpha1().Breads("default").Create(t.Context(), rye, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	output, err := cp.Kubectl(t.Context(), "wait", "bread", "rye", "--for=jsonpath={.status.loaves}=1", "--timeout="+controlplane.Patience.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	read, err := breads.Get(t.Context(), "rye", metav1.GetOptions{})
	if err != nil || len(read.Spec.Flours) != 2 {
		t.Fatalf("%v: the flours are %v", err, read.Spec.Flours)
	}

	spelt := &bakeryv1.Bread{ObjectMeta: metav1.ObjectMeta{Name: "spelt"}}
	spelt.Spec.Shelf = "top"
	if _, err := breads.Create(t.Context(), spelt, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the shelf top has rye on it") {
		t.Fatalf("the error is %v", err)
	}
	for patch, want := range map[string]string{
		`{"spec": {"loaves": 101}}`:                              "must be less than or equal to 100",
		`{"spec": {"flours": [{"name": "rye", "percent": 99}]}}`: "the percents must add up to 100",
	} {
		if _, err := breads.Patch(t.Context(), "rye", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: the error is %v", patch, err)
		}
	}
	output, err = cp.Kubectl(t.Context(), "get", "br,toppings", "--all-namespaces").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "rye") {
		t.Fatalf("%v: %s", err, output)
	}
}

func TestStrangerIsForbidden(t *testing.T) {
	config, err := cp.RESTConfigForServiceAccount("default", "stranger")
	if err != nil {
		t.Fatal(err)
	}
	_, err = versioned.NewForConfigOrDie(config).BakeryV1().Breads("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:default:stranger") {
		t.Fatalf("the error is %v", err)
	}
}

// TestConformance examines whether breads behave as the kinds of Kubernetes do, on a control plane
// without the controller: what a check writes, nobody else changes.
func TestConformance(t *testing.T) {
	config := controlplane.Config{}
	config.APIServer.Package, config.APIServer.Flags = "example.com/bakery", []string{"--run-controllers=false"}
	cp := controlplane.ForTest(t, config)
	conformance.Test(t, cp.RESTConfig(), conformance.Options{
		Level: conformance.Hostile, WebhookAddress: "127.0.0.1:0",
		GroupVersions: []schema.GroupVersion{bakeryv1.SchemeGroupVersion, bakeryv1alpha1.SchemeGroupVersion},
	})
}
