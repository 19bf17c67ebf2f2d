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

package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Label is a label of every object that a check creates. Its value is the check's own, see
// Probe.Selector.
const Label = "conformance.example.com/check"

// Patience is how long a probe waits for effects that an API has after its answer.
const Patience = 15 * time.Second

// Probe is a check's way to the API. Like testing.T it belongs to the goroutine that runs the
// check. Methods that end the check end that goroutine.
type Probe struct {
	*Resource
	// Example is an object that the API accepts, with valid changes.
	Example *Example
	// Namespace is where the check's objects are. It is empty for a resource without namespaces.
	Namespace string
	// ID is unique to the check and the run. Names of objects begin with it.
	ID string

	ctx   context.Context
	run   *run
	check Check
	// result is the result of the check.
	result *Result
	// ledger has what the check may have created.
	ledger *ledger
	// accounts is the namespace of service accounts, once there are any.
	accounts string
}

// Fail ends the check with a finding about an answer. The text says what is expected, and how the
// answer differs.
func (p *Probe) Fail(answer Answer, format string, args ...any) {
	p.fail(answer, format, fmt.Sprintf(format, args...))
}

func (p *Probe) fail(answer Answer, cause, problem string) {
	p.end(Failed, "", &Finding{Sent: answer.Request.String(), Came: answer.String(), Problem: problem, Cause: cause, Command: answer.Request.Command()})
}

// NotOffered ends the check with a reason why it makes no sense for the resource. Checks call it if
// only a request can show that.
func (p *Probe) NotOffered(format string, args ...any) {
	p.end(NotOffered, fmt.Sprintf(format, args...), nil)
}

// Require ends the check with a finding unless something holds. The text is as for Fail.
func (p *Probe) Require(answer Answer, holds bool, format string, args ...any) {
	if !holds {
		p.Fail(answer, format, args...)
	}
}

// OnlyIf ends the check as not offered unless something holds. The text says what is missing.
func (p *Probe) OnlyIf(holds bool, format string, args ...any) {
	if !holds {
		p.NotOffered(format, args...)
	}
}

func (p *Probe) end(outcome Outcome, reason string, finding *Finding) {
	p.result.Outcome, p.result.Reason, p.result.Finding = outcome, reason, finding
	runtime.Goexit()
}

// Equal ends the check if two values differ, and shows where.
func (p *Probe) Equal(answer Answer, what string, want, got any) {
	if reflect.DeepEqual(want, got) {
		return
	}
	text, paths := fmt.Sprintf("%s: %s is expected, %s came", what, inJSON(want), inJSON(got)), []string{what}
	if differences := diff("", plain(want), plain(got)); len(differences) > 0 && differences[0].path != "" {
		text, paths = what+" differs:", nil
		for _, one := range differences {
			text += fmt.Sprintf("\n%s: %s is expected, %s came", one.path, inShort(one.want), inShort(one.got))
			paths = append(paths, one.path)
		}
	}
	p.fail(answer, strings.Join(paths, ", "), text)
}

// difference is a part of two values that differs. A part that is missing is nil.
type difference struct {
	path      string
	want, got any
}

// diff returns the smallest parts of two values that differ. Lists of different lengths are shown as a whole.
func diff(path string, want, got any) []difference {
	wanted, isObject := want.(map[string]any)
	came, areObjects := got.(map[string]any)
	if !isObject || !areObjects {
		wantedItems, isList := want.([]any)
		items, areLists := got.([]any)
		if !isList || !areLists || len(wantedItems) != len(items) {
			if reflect.DeepEqual(want, got) {
				return nil
			}
			return []difference{{strings.TrimPrefix(path, "."), want, got}}
		}
		wanted, came = map[string]any{}, map[string]any{}
		for i := range items {
			wanted[fmt.Sprint(i)], came[fmt.Sprint(i)] = wantedItems[i], items[i]
		}
	}
	all := maps.Clone(wanted)
	maps.Copy(all, came)
	var differences []difference
	for _, name := range slices.Sorted(maps.Keys(all)) {
		differences = append(differences, diff(path+"."+name, wanted[name], came[name])...)
	}
	return differences
}

// plain returns a value as JSON has it.
func plain(value any) (plain any) {
	if json.Unmarshal([]byte(inJSON(value)), &plain) != nil {
		return value
	}
	return plain
}

// inShort returns a part of an object in JSON, or its beginning.
func inShort(value any) string {
	if value == nil {
		return "nothing"
	}
	return excerpt([]byte(inJSON(value)), 200)
}

func inJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%v", value)
	}
	return string(text)
}

// Name returns the name of the check's object with a suffix.
func (p *Probe) Name(suffix string) string { return p.ID + "-" + suffix }

// Selector selects the check's objects, or only those that also match other terms.
func (p *Probe) Selector(terms ...string) Option {
	return Query("labelSelector", strings.Join(append([]string{Label + "=" + p.ID}, terms...), ","))
}

// New returns an object with changes that has not been created.
func (p *Probe) New(suffix string, changes ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	object := p.Example.New()
	object.SetGroupVersionKind(p.GroupVersionKind())
	object.SetName(p.Name(suffix))
	object.SetNamespace(p.Namespace)
	for _, change := range append(changes, labeled(Label, p.ID)) {
		change(object)
	}
	return object
}

// Collection returns the path of the check's objects, or of one object or its subresource.
func (p *Probe) Collection(below ...string) string {
	return p.CollectionIn(p.Namespace, p.Version, below...)
}

// CollectionIn returns the path in a namespace and a version. An empty namespace stands for all.
func (p *Probe) CollectionIn(namespace, version string, below ...string) string {
	path := p.in(version).path(namespace)
	for _, part := range below {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// Do sends a request. It ends the check if no answer comes.
func (p *Probe) Do(method, path string, body any, options ...Option) Answer {
	answer, err := p.send(p.ctx, newRequest(method, path, body, options...))
	if err != nil {
		p.unanswered(answer, err)
	}
	return answer
}

// send sends a request, and notes what it may create.
func (p *Probe) send(ctx context.Context, request Request) (Answer, error) {
	p.ledger.note(p.ID, request)
	answer, err := p.run.send(ctx, request)
	var created struct{ Metadata metav1.ObjectMeta }
	if request.Method == http.MethodPost && err == nil && answer.Code < 300 && json.Unmarshal(answer.Body, &created) == nil {
		// The name may come from the server.
		p.ledger.note(p.ID, Request{Method: http.MethodPut, Path: request.Path + "/" + created.Metadata.Name})
	}
	return answer, err
}

// unanswered ends the check because a request got no answer.
func (p *Probe) unanswered(answer Answer, err error) {
	p.inTime()
	p.Fail(answer, "no answer has come: %v", err)
}

const interrupted = "the run has been interrupted"

// inTime ends the check without a finding if its time is over. No single request took too long.
func (p *Probe) inTime() {
	switch {
	case errors.Is(p.ctx.Err(), context.Canceled):
		p.end(NotChecked, interrupted, nil)
	case p.ctx.Err() != nil:
		p.end(NotChecked, fmt.Sprintf("the check has not ended within %v: on a machine with less to do, it may", checkTime), nil)
	}
}

// Get reads an object.
func (p *Probe) Get(name string, options ...Option) Answer {
	return p.Do(http.MethodGet, p.Collection(name), nil, options...)
}

// List lists the check's objects.
func (p *Probe) List(options ...Option) Answer {
	return p.Do(http.MethodGet, p.Collection(), nil, append(options, p.Selector())...)
}

// Post creates an object.
func (p *Probe) Post(object *unstructured.Unstructured, options ...Option) Answer {
	return p.Do(http.MethodPost, p.Collection(), object.Object, options...)
}

// Put updates an object.
func (p *Probe) Put(object *unstructured.Unstructured, options ...Option) Answer {
	return p.Do(http.MethodPut, p.Collection(object.GetName()), object.Object, options...)
}

// Patch patches an object. A patch that is a string is sent as it is.
func (p *Probe) Patch(name string, kind types.PatchType, patch any, options ...Option) Answer {
	return p.Do(http.MethodPatch, p.Collection(name), patch, append([]Option{Header("Content-Type", string(kind))}, options...)...)
}

// Apply applies an object as a field manager.
func (p *Probe) Apply(manager string, object *unstructured.Unstructured, options ...Option) Answer {
	return p.Patch(object.GetName(), types.ApplyPatchType, object.Object, append([]Option{Query("fieldManager", manager)}, options...)...)
}

// Delete deletes an object.
func (p *Probe) Delete(name string, body any, options ...Option) Answer {
	return p.Do(http.MethodDelete, p.Collection(name), body, options...)
}

// Create creates an object with changes, and ends the check if it can't.
func (p *Probe) Create(suffix string, changes ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	return p.Object(p.Post(p.New(suffix, changes...)), http.StatusCreated)
}

// Object returns the object of an answer, and ends the check if the answer has another code.
func (p *Probe) Object(answer Answer, code int) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	p.Decode(answer, code, &object.Object)
	return object
}

// Items returns the list of an answer, and ends the check if it is none.
func (p *Probe) Items(answer Answer) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	p.Decode(answer, http.StatusOK, nil)
	err := list.UnmarshalJSON(answer.Body)
	p.Require(answer, err == nil, "a list is expected: %v", err)
	return list
}

// Decode decodes the JSON of an answer and returns the answer. It ends the check if the answer has
// another code.
func (p *Probe) Decode(answer Answer, code int, into any) Answer {
	if answer.Code != code {
		p.fail(answer, fmt.Sprintf("%s: %d instead of %d", answer.Request.Method, answer.Code, code), fmt.Sprintf("%d is expected", code))
	}
	p.Require(answer, strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json"), "application/json is expected")
	if into == nil {
		return answer
	}
	unmarshal := json.Unmarshal
	if _, isObject := into.(*map[string]any); isObject {
		unmarshal = utiljson.Unmarshal // Integers stay integers.
	}
	err := unmarshal(answer.Body, into)
	p.Require(answer, err == nil, "JSON is expected: %v", err)
	return answer
}

// Refused returns the Status of a refusal, and ends the check if the answer is anything else. The
// Status always has details. An empty reason stands for any.
func (p *Probe) Refused(answer Answer, code int, reason metav1.StatusReason) *metav1.Status {
	var status metav1.Status
	p.Decode(answer, code, &status)
	status.Details = cmp.Or(status.Details, &metav1.StatusDetails{})
	p.Require(answer, status.Kind == "Status" && status.APIVersion == "v1" && status.Status == metav1.StatusFailure && int(status.Code) == code,
		"a Status of version v1 with that code is expected")
	p.Require(answer, status.Message != "", "a message is expected")
	p.Require(answer, reason == "" || status.Reason == reason, "the reason %s is expected", reason)
	return &status
}

// Eventually sends a request until its answer is as expected. It ends the check if that takes
// longer than Patience. The condition returns a text about something missing, or "".
func (p *Probe) Eventually(send func() Answer, missing func(Answer) string) Answer {
	return p.Within(Patience, send, missing)
}

// Within is Eventually with another patience.
func (p *Probe) Within(patience time.Duration, send func() Answer, missing func(Answer) string) Answer {
	deadline := time.Now().Add(patience)
	for {
		answer := send()
		text := missing(answer)
		if text == "" {
			return answer
		}
		if time.Now().After(deadline) {
			p.fail(answer, text, fmt.Sprintf("%s within %v", text, patience))
		}
		select {
		case <-p.ctx.Done():
			p.inTime()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// OwnNamespace moves the check to a namespace of its own. Checks need one for effects on a whole
// namespace.
func (p *Probe) OwnNamespace() { p.Namespace = p.OtherNamespace("own") }

// OtherNamespace makes a namespace that is deleted after the check.
func (p *Probe) OtherNamespace(suffix string) string {
	name := p.Name(suffix)
	if err := p.createNamespace(name); err != nil {
		p.inTime()
		p.end(Failed, "", &Finding{Problem: err.Error()})
	}
	return name
}

// createNamespace creates a namespace that is deleted after the check.
func (p *Probe) createNamespace(name string) error {
	answer, err := p.send(p.ctx, newRequest(http.MethodPost, namespaces, map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": map[string]any{Label: p.ID}},
	}))
	if err != nil {
		return err
	}
	if answer.Code != http.StatusCreated {
		return fmt.Errorf("a namespace for the checks can't be created (%s): a run that writes needs permission for that; with --read-only it writes nothing", statusOf(answer))
	}
	return nil
}

// Make creates an object of another kind, for example a policy, which is deleted after the check. The
// YAML has placeholders as fmt.Sprintf has. It ends the check as not offered if the run's
// user may not create it.
func (p *Probe) Make(manifest string, values ...any) {
	object := &unstructured.Unstructured{}
	err := yaml.Unmarshal(fmt.Appendf(nil, manifest, values...), &object.Object)
	p.Require(Answer{}, err == nil, "the manifest of the check is no YAML: %v", err)
	labeled(Label, p.ID)(object)
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	answer := p.Do(http.MethodPost, (&Resource{GroupVersionResource: resource}).path(object.GetNamespace()), object.Object)
	p.OnlyIf(answer.Code != http.StatusForbidden && answer.Code != http.StatusNotFound, "the check needs an object that this user can't create: %s", statusOf(answer))
	p.Decode(answer, http.StatusCreated, nil)
}

// statusOf returns the message of a Status.
func statusOf(answer Answer) string {
	var status metav1.Status
	if err := json.Unmarshal(answer.Body, &status); err != nil {
		return answer.String()
	}
	return printable(apierrors.FromObject(&status).Error())
}
