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

package framework

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// AuditLog is the name of the audit log that LookServed reads, in the server's directory.
const AuditLog = "audit.log"

// LookServed checks every request of all tests when they have ended. The authorized resource must
// be the one in the path and in the answer.
func LookServed(_ context.Context, cp *controlplane.ControlPlane) error {
	cp.AfterTests(func() error {
		return servedAsAuthorized(filepath.Join(cp.APIServer.Dir(), AuditLog))
	})
	return nil
}

func servedAsAuthorized(path string) error {
	log, err := os.Open(path)
	if err != nil {
		return err
	}
	defer log.Close()
	answered := 0
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if event.Stage != auditv1.StageResponseComplete || event.ResponseStatus == nil || event.ResponseStatus.Code >= 300 {
			continue
		}
		answered++
		if err := compareServed(event); err != nil {
			return fmt.Errorf("%s %s was authorized as %+v: %w", event.Verb, event.RequestURI, *event.ObjectRef, err)
		}
	}
	if answered == 0 {
		return errors.New("the audit log has no request that has been answered")
	}
	return nil
}

const ownVersions = restaurant.GroupName + "/"

// answers are the groups and kinds of each resource's answers.
var answers = map[string][]string{
	"pizzas":        {ownVersions + "Pizza", ownVersions + "PizzaList"},
	"pizzas/status": {ownVersions + "Pizza"},
	"pizzas/scale":  {autoscalingv1.GroupName + "/Scale"},
	"pizzas/bake":   {ownVersions + "Bake"},
	"toppings":      {ownVersions + "Topping", ownVersions + "ToppingList"},
	"pricereviews":  {ownVersions + "PriceReview"},
}

// anyAnswers are the groups and kinds that every resource may answer with.
var anyAnswers = []string{metav1.GroupName + "/Table", metav1.GroupName + "/PartialObjectMetadata", metav1.GroupName + "/PartialObjectMetadataList", "/Status"}

// compareServed returns an error if the path or the answer of a request is not about the authorized
// resource.
func compareServed(event auditv1.Event) error {
	ref := event.ObjectRef
	if ref == nil {
		return errors.New("nothing was authorized by name")
	}
	address, err := url.ParseRequestURI(event.RequestURI)
	if err != nil {
		return err
	}
	want := "/apis/" + ref.APIGroup + "/" + ref.APIVersion
	if ref.Namespace != "" {
		want += "/namespaces/" + ref.Namespace
	}
	want += "/" + ref.Resource
	named := ref.Name
	if ref.Subresource == "" && slices.Contains([]string{"create", "list", "watch", "deletecollection"}, event.Verb) {
		named = "" // The name is in the body, or in a field selector.
	}
	for _, part := range []string{named, ref.Subresource} {
		if part != "" {
			want += "/" + part
		}
	}
	if strings.TrimRight(address.Path, "/") != want && !strings.HasPrefix(address.Path, "/apis/"+ref.APIGroup+"/"+ref.APIVersion+"/watch/") {
		return fmt.Errorf("its path is not %s", want)
	}
	if event.ResponseObject == nil {
		return nil
	}
	var answer metav1.PartialObjectMetadata
	if err := json.Unmarshal(event.ResponseObject.Raw, &answer); err != nil {
		return err
	}
	kind := answer.GroupVersionKind().GroupKind()
	allowed := answers[strings.TrimSuffix(ref.Resource+"/"+ref.Subresource, "/")]
	if text := kind.Group + "/" + kind.Kind; !slices.Contains(allowed, text) && !slices.Contains(anyAnswers, text) {
		return fmt.Errorf("%s was answered", text)
	}
	if answer.Name != "" && ref.Name != "" && (answer.Name != ref.Name || answer.Namespace != ref.Namespace) {
		return fmt.Errorf("%s/%s was answered", answer.Namespace, answer.Name)
	}
	return nil
}
