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

package definitions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/kit/objects"
)

// servers are the two that are asked.
type servers struct {
	client         *http.Client
	defined, typed string
}

// answer is what a server says to an object.
type answer struct {
	code   int
	object map[string]any
	raw    []byte
}

func (a answer) accepted() bool { return a.code/100 == 2 }

// ask sends an object, or a patch.
func (s *servers) ask(t *testing.T, method, url string, body []byte) (answer, error) {
	if method == http.MethodPatch {
		return ask(t, s.client, method, url, string(types.JSONPatchType), body)
	}
	return ask(t, s.client, method, url, "application/json", body)
}

func ask(t *testing.T, client *http.Client, method, url, contentType string, body []byte) (answer, error) {
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	answer := answer{code: response.StatusCode}
	if answer.raw, err = io.ReadAll(response.Body); err != nil {
		return answer, err
	}
	if !answer.accepted() {
		// Nothing else is a verdict.
		if answer.code != http.StatusBadRequest && answer.code != http.StatusUnprocessableEntity && answer.code != http.StatusForbidden &&
			answer.code != http.StatusRequestEntityTooLarge && answer.code != http.StatusConflict {
			return answer, fmt.Errorf("%s: %d %s", url, answer.code, answer.raw)
		}
		return answer, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(answer.raw))
	decoder.UseNumber()
	if err := decoder.Decode(&answer.object); err != nil {
		return answer, err
	}
	if metadata, ok := answer.object["metadata"].(map[string]any); ok {
		for _, name := range []string{"uid", "creationTimestamp", "managedFields", "resourceVersion"} {
			delete(metadata, name)
		}
	}
	return answer, nil
}

// version is one of a definition, whose objects are compared.
type version struct {
	*servers
	definition *apiextensionsv1.CustomResourceDefinition
	apiextensionsv1.CustomResourceDefinitionVersion
}

func (v *version) String() string { return v.definition.Name + "/" + v.Name }

// url is where objects are created.
func (v *version) url(server string) string {
	spec := v.definition.Spec
	at := path.Join("/apis", spec.Group, v.Name)
	if spec.Scope == apiextensionsv1.NamespaceScoped {
		at = path.Join(at, "namespaces", "default")
	}
	return server + path.Join(at, spec.Names.Plural)
}

// object is one with the fields.
func (v *version) object(name string, fields map[string]any) []byte {
	object := map[string]any{
		"apiVersion": v.definition.Spec.Group + "/" + v.Name, "kind": v.definition.Spec.Names.Kind, "metadata": map[string]any{"name": name},
	}
	maps.Copy(object, fields)
	return encode(object)
}

func encode(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

// request is how both servers are asked about the fields of an object.
type request func(t *testing.T, server, options string, fields map[string]any) (answer, error)

func (v *version) create(t *testing.T, server, options string, fields map[string]any) (answer, error) {
	return v.ask(t, http.MethodPost, v.url(server)+options, v.object("tried", fields))
}

// stored is the name of the object whose status is changed.
const stored = "stored"

// changeStatus sends a patch, which needs no version of the object.
func (v *version) changeStatus(t *testing.T, server, options string, fields map[string]any) (answer, error) {
	patch := []map[string]any{{"op": "add", "path": "/status", "value": fields["status"]}}
	if _, found := fields["status"]; !found {
		patch = []map[string]any{{"op": "test", "path": "/metadata/name", "value": stored}}
	}
	return v.ask(t, http.MethodPatch, v.url(server)+"/"+stored+"/status"+options, encode(patch))
}

// trial is an object with what is different in it.
type trial struct {
	path, change string
	fields       map[string]any

	// base is the object that was changed.
	base *trial
	// accepted is true if kube-apiserver accepts it, and alike if both servers do.
	accepted, alike bool
	verdicts        []verdict
}

// has reports whether the servers differ in that way.
func (t *trial) has(text string) bool {
	return t != nil && slices.ContainsFunc(t.verdicts, func(verdict verdict) bool { return verdict.text == text })
}

// add remembers how the servers differ, unless it is so without the change.
func (t *trial) add(strict bool, text, example string) {
	if !t.has(text) && !t.base.has(text) {
		t.verdicts = append(t.verdicts, verdict{strict, text, example})
	}
}

// verdict is how the servers differ about an object.
type verdict struct {
	strict        bool
	text, example string
}

// compareObjects adds what the servers say differently to objects, and to their status.
func (v *version) compareObjects(t *testing.T, all differences, count int) {
	t.Helper()
	schema := v.Schema.OpenAPIV3Schema.DeepCopy()
	status, found := schema.Properties["status"]
	hasStatus := found && v.Subresources != nil && v.Subresources.Status != nil
	if hasStatus {
		delete(schema.Properties, "status")
	}
	valid := v.compareRequests(t, all, schema, v.create, count)
	i := slices.IndexFunc(valid, func(trial *trial) bool { return trial.alike })
	if !hasStatus {
		return
	}
	if i < 0 {
		all.add(difference{v.String(), "", "none", "there is no object that both servers accept"}, "")
		return
	}
	for _, server := range []string{v.defined, v.typed} {
		answer, err := v.ask(t, http.MethodPost, v.url(server), v.object(stored, valid[i].fields))
		require.NoError(t, err)
		// Other versions have the same objects.
		require.True(t, answer.accepted() || answer.code == http.StatusConflict, "%s", answer.raw)
	}
	v.compareRequests(t, all, &objects.Schema{
		Type: "object", Required: []string{"status"}, Properties: map[string]objects.Schema{"status": status},
	}, v.changeStatus, count/5)
}

// compareRequests compares a fifth that the schema accepts, and others that differ by one change from
// one of those. It returns the first.
func (v *version) compareRequests(t *testing.T, all differences, schema *objects.Schema, ask request, count int) (valid []*trial) {
	t.Helper()
	generator := objects.New(schema, 1)
	var bases []*trial
	// Rules in CEL refuse some objects, which are worth a comparison, but nothing to start from.
	for len(bases) < count/5 && len(valid) < 4*count {
		some := make([]*trial, count/5)
		for i := range some {
			some[i] = &trial{change: "none", fields: generator.Valid()}
		}
		v.try(t, some, ask)
		for _, trial := range some {
			if trial.accepted {
				bases = append(bases, trial)
			}
		}
		valid = append(valid, some...)
	}
	if len(bases) == 0 {
		all.add(difference{v.String(), "", "none", "kube-apiserver accepts no object"}, "")
		bases = valid
	}
	trials := slices.Concat(valid, changed(schema, bases, count*4/5))
	v.try(t, trials[len(valid):], ask)
	accepted, alike := 0, 0
	for _, trial := range trials {
		if trial.accepted {
			accepted++
		}
		if len(trial.verdicts) == 0 {
			alike++
		}
		for _, verdict := range trial.verdicts {
			change := trial.change
			if verdict.strict {
				change += " (strict)"
			}
			all.add(difference{v.String(), trial.path, change, verdict.text}, verdict.example)
		}
	}
	t.Logf("%s: %d objects; kube-apiserver accepts %d of them; about %d the servers agree", v, len(trials), accepted, alike)
	return valid
}

// changed are objects that differ from others by one change. Those come first whose path and change
// no other one has.
func changed(schema *objects.Schema, bases []*trial, count int) (trials []*trial) {
	random := rand.New(rand.NewPCG(1, 1))
	made := map[[2]string]int{}
	for i := range count {
		base := bases[i%len(bases)]
		changes := objects.Changes(schema, base.fields)
		if len(changes) == 0 {
			continue
		}
		random.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		change := slices.MinFunc(changes, func(a, b objects.Change) int {
			return made[[2]string{a.Path, a.Name}] - made[[2]string{b.Path, b.Name}]
		})
		made[[2]string{change.Path, change.Name}]++
		trials = append(trials, &trial{path: change.Path, change: change.Name, fields: change.Apply(base.fields), base: base})
	}
	return trials
}

// try asks both servers about objects.
func (v *version) try(t *testing.T, trials []*trial, ask request) {
	t.Helper()
	group, _ := errgroup.WithContext(t.Context())
	group.SetLimit(4)
	for _, trial := range trials {
		group.Go(func() error {
			for _, validation := range []string{"Ignore", "Strict"} {
				options := "?dryRun=All&fieldValidation=" + validation
				defined, err := ask(t, v.defined, options, trial.fields)
				if err != nil {
					return err
				}
				typed, err := ask(t, v.typed, options, trial.fields)
				if err != nil {
					return err
				}
				trial.accepted = trial.accepted || defined.accepted()
				trial.alike = trial.alike || defined.accepted() && typed.accepted()
				for _, text := range compareAnswers(defined, typed) {
					trial.add(validation == "Strict", text, fmt.Sprintf("%.600s%s%s", encode(trial.fields), defined.refusal("defined"), typed.refusal("typed")))
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// refusal is why the object was refused, if it was.
func (a answer) refusal(server string) string {
	var status struct{ Message string }
	if a.accepted() || json.Unmarshal(a.raw, &status) != nil {
		return ""
	}
	return fmt.Sprintf("\n\t%s: %.300s", server, status.Message)
}

// compareAnswers are the differences of two answers.
func compareAnswers(defined, typed answer) (verdicts []string) {
	switch {
	case defined.code/100 != typed.code/100:
		return []string{fmt.Sprintf("defined %d, typed %d", defined.code, typed.code)}
	case !defined.accepted():
		return nil
	}
	compareValues("", defined.object, typed.object, func(path, verdict string) {
		if verdict := "both accept it, but " + path + ": " + verdict; !slices.Contains(verdicts, verdict) {
			verdicts = append(verdicts, verdict)
		}
	})
	return verdicts
}
