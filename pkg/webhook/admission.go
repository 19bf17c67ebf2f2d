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

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// admission answers admission reviews. Those of v1 and v1beta1 have the same fields.
type admission struct {
	Webhooks
	codec codec
}

// admit answers a mutating admission review with a patch of the object as it was
// sent, in the version it was sent in.
func (a admission) admit(ctx context.Context, review *admissionv1.AdmissionReview) error {
	return answerAdmission(review, func(request *Request, response *admissionv1.AdmissionResponse) error {
		version, err := a.decode(request)
		if request.New == nil || err != nil {
			return err
		}
		before, err := a.codec.encode(request.New, version)
		if err != nil {
			return err
		}
		if err := a.Mutate(ctx, request); err != nil {
			return err
		}
		after, err := a.codec.encode(request.New, version)
		if err != nil {
			return err
		}
		var sent map[string]any
		if err := utiljson.Unmarshal(request.Object.Raw, &sent); err != nil {
			return err
		}
		if response.Patch, err = patch(sent, before, after); response.Patch != nil {
			response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
		return err
	})
}

// validate answers a validating admission review.
func (a admission) validate(ctx context.Context, review *admissionv1.AdmissionReview) error {
	return answerAdmission(review, func(request *Request, _ *admissionv1.AdmissionResponse) error {
		version, err := a.decode(request)
		if err != nil {
			return err
		}
		if request.New != nil {
			if err := a.validateObject(ctx, request, version); err != nil {
				return err
			}
		}
		if request.New == nil && request.Old == nil {
			return nil
		}
		if err := a.synced(); err != nil {
			return err
		}
		return a.Validate(ctx, request)
	})
}

// answerAdmission turns an error into a refusal.
func answerAdmission(review *admissionv1.AdmissionReview, judge func(*Request, *admissionv1.AdmissionResponse) error) error {
	if review.Request == nil {
		return errNoRequest
	}
	request := &Request{AdmissionRequest: review.Request}
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	review.Request, review.Response = nil, response
	if err := judge(request, response); err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		*response = admissionv1.AdmissionResponse{UID: request.UID, Result: new(status.Status())}
	}
	return nil
}

// decode decodes the objects of a request and returns the version it is in. A request about
// a kind of another group, for instance a Scale, has none that are known here. A request to
// connect has options instead.
func (a admission) decode(request *Request) (version schema.GroupVersion, err error) {
	version = schema.GroupVersion{Group: request.Kind.Group, Version: request.Kind.Version}
	if request.Operation == admissionv1.Connect || !a.Scheme.IsGroupRegistered(version.Group) {
		return version, nil
	}
	for _, object := range []struct {
		name    string
		raw     []byte
		decoded *runtime.Object
	}{
		{"object", request.Object.Raw, &request.New},
		{"oldObject", request.OldObject.Raw, &request.Old},
	} {
		if object.raw == nil {
			continue
		}
		if *object.decoded, version, err = a.codec.decode(object.raw); err != nil {
			return version, apierrors.NewBadRequest(fmt.Sprintf("the %s can't be read: %v", object.name, err))
		}
	}
	return version, nil
}

// validateObject runs the generated validation of the object's version, and the one that is
// written by hand.
func (a admission) validateObject(ctx context.Context, request *Request, version schema.GroupVersion) error {
	versioned, err := a.Scheme.ConvertToVersion(request.New, version)
	if err != nil {
		return err
	}
	errs := a.ValidateObject(request.New)
	if request.Old == nil {
		errs = append(errs, a.Scheme.Validate(ctx, nil, versioned)...)
	} else {
		old, err := a.Scheme.ConvertToVersion(request.Old, version)
		if err != nil {
			return err
		}
		errs = append(errs, a.Scheme.ValidateUpdate(ctx, nil, versioned, old)...)
	}
	if len(errs) == 0 {
		return nil
	}
	object, err := meta.Accessor(request.New)
	if err != nil {
		return err
	}
	return apierrors.NewInvalid(versioned.GetObjectKind().GroupVersionKind().GroupKind(), object.GetName(), errs)
}

// synced returns an error until all informers of Validate have synced. Clients that are
// told when to try again do so by themselves.
func (a admission) synced() error {
	var missing []string
	for _, resource := range slices.Sorted(maps.Keys(a.Informers)) {
		if !a.Informers[resource].HasSynced() {
			missing = append(missing, resource)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err := apierrors.NewServiceUnavailable(fmt.Sprintf("this webhook has not read all %s of the cluster yet: try again", strings.Join(missing, " and ")))
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// operation is one of a JSON patch, RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch returns the JSON patch that applies the difference between before and after to
// sent, or nil. Fields that have got a default may be missing in sent, or be null. A list
// is replaced as a whole.
func patch(sent, before, after map[string]any) ([]byte, error) {
	operations := diff("", sent, before, after)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

func diff(path string, sent, before, after map[string]any) []operation {
	var operations []operation
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if equality.Semantic.DeepEqual(before[key], after[key]) {
			continue
		}
		sentInner, isSent := sent[key].(map[string]any)
		beforeInner, wasObject := before[key].(map[string]any)
		afterInner, isObject := after[key].(map[string]any)
		if isSent && wasObject && isObject {
			operations = append(operations, diff(join(path, key), sentInner, beforeInner, afterInner)...)
		} else {
			operations = append(operations, operation{Op: "add", Path: join(path, key), Value: after[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		_, remains := after[key]
		if _, isSent := sent[key]; isSent && !remains {
			operations = append(operations, operation{Op: "remove", Path: join(path, key)})
		}
	}
	return operations
}

// join appends a key to a JSON pointer, RFC 6901.
func join(path, key string) string {
	return path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
