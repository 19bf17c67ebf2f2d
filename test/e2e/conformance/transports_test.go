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
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Several matches use these.
const (
	asJSON     = "application/json"
	asTable    = "^application/json;as=Table"
	asMetadata = "^application/json;as=PartialObjectMetadata"
	noUID      = "00000000-0000-0000-0000-000000000000"
	trial      = `"ConformanceTried"`
)

// Several transports hide the details of a refusal, empty a list, or age an object.
const (
	details, hidden  = `"details":`, `"other":`
	items, noItems   = `"items":\[.*\]`, `"items":[]`
	version, another = `"resourceVersion":"\d+"`, `"resourceVersion":"1"`
)

// transports returns transports that each break the behaviour of one check, by the ID of the check.
func transports() map[string]Transport {
	get, post, put, patch, remove := method(http.MethodGet), method(http.MethodPost), method(http.MethodPut), method(http.MethodPatch), method(http.MethodDelete)
	reads := func(request *http.Request) bool { return get(request) && !watches(request) }

	ofVersion := path("^/apis/[^/]+/[^/]+$")
	aggregated := has("Accept", "as=APIGroupDiscoveryList")
	v2, v3 := path("^/openapi/v2"), path("^/openapi/v3/apis/")
	older := not(path("/v1(/|$)"))

	applies := func(manager, suffix string) match {
		return func(request *http.Request) bool {
			return patch(request) && with("fieldManager", manager)(request) && named(suffix)(request)
		}
	}
	owner := func(manager, version string) string {
		return `"managedFields":[{"manager":"` + manager + `","operation":"Apply","apiVersion":"example.com/` + version + `","fieldsType":"FieldsV1","fieldsV1":{}}`
	}
	wet := func(matches ...match) Transport { return query("dryRun=All", "", matches...) }
	propagates := func(from, to string) Transport {
		return query("propagationPolicy="+from, "propagationPolicy="+to, remove, without("dryRun"))
	}

	token, impersonated, forged := has("Authorization", "."), has("Impersonate-User", "."), has("X-Remote-User", ".")
	fails := func(matches ...match) Transport { return code(0, http.StatusInternalServerError, matches...) }
	redirects := func(matches ...match) Transport { return code(0, http.StatusMovedPermanently, matches...) }

	return map[string]Transport{
		"discovery/group":      text(`"name":"[^"]*\.[^"]*"`, `"name":"other.example.com"`, path("^/apis$"), not(aggregated)),
		"discovery/resources":  text(`"groupVersion":"[^"]*"`, `"groupVersion":"other.example.com/v1"`, ofVersion),
		"discovery/aggregated": text(`"freshness":"\w+"`, `"freshness":"Stale"`, aggregated),
		"discovery/names": text(`"shortNames":\[[^\]]*\]`, `"shortNames":["same"]`, func(request *http.Request) bool {
			return ofVersion(request) || aggregated(request)
		}),
		"discovery/scope": requests(func(request *http.Request) {
			request.URL.Path = strings.Join(slices.Insert(strings.Split(request.URL.Path, "/"), 4, "namespaces", "default"), "/")
		}, get, path("^/apis/[^/]+/[^/]+/[^/]+/conformance-[^/]+$")),
		"discovery/verbs": code(0, http.StatusMethodNotAllowed, put, named("missing"), with("dryRun", "All")),

		"openapi/v3-index":      code(0, http.StatusNotFound, v3, with("hash", "OLD")),
		"openapi/v3-references": text(`"paths":\{`, `"paths":{"/broken":{"parameters":[{"$$ref":"#/broken"}]},`, v3),
		"openapi/v3-paths":      text(`"patch":\{`, `"trace":{`, v3),
		"openapi/v3-object":     text(`"uid":\{[^}]*\}`, `"uid":{"type":"integer"}`, v3),
		"openapi/v2-references": text(`"paths":\{`, `"paths":{"/broken":{"parameters":[{"$$ref":"#/broken"}]},`, v2),
		"openapi/v2-models":     text("x-kubernetes-group-version-kind", "x-kubernetes-group-version-none", v2, has("Accept", "protobuf")),
		"openapi/agreement":     text(`"status":\{`, `"other":{`, v2),

		"verbs/create":           text(`"uid":"[^"]*"`, `"uid":"`+noUID+`"`, post, sends(`"uid":"`+noUID+`"`)),
		"verbs/create-existing":  code(http.StatusConflict, http.StatusInternalServerError, post, without("dryRun")),
		"verbs/names":            text(details, hidden, post, sends(`"name":".."`)),
		"verbs/generate-name":    text(`"name":"(conformance-[^"]*)[a-z0-9]{5}"`, `"name":"${1}00000"`, post, sends(`"generateName"`)),
		"verbs/bodies":           code(http.StatusBadRequest, http.StatusInternalServerError, put, sends(`"kind":"Other"`)),
		"verbs/media-types":      code(http.StatusNotAcceptable, http.StatusBadRequest, get, with("labelSelector", "")),
		"verbs/methods":          code(http.StatusMethodNotAllowed, http.StatusNotFound, put),
		"verbs/get-missing":      text(details, hidden, get, named("missing")),
		"verbs/write-missing":    text(`"reason":"NotFound"`, `"reason":"Unknown"`, put, named("missing")),
		"verbs/list":             text(`"kind":"\w+List"`, `"kind":"OtherList"`, reads, with("labelSelector", ""), without("fieldSelector"), has("Accept", "^application/json$")),
		"verbs/label-selectors":  query(`\+notin\+`, "+in+", get),
		"verbs/field-selectors":  query("fieldSelector=metadata.name%21%3D", "fieldSelector=metadata.name%3D", reads),
		"verbs/bad-selectors":    query("fieldSelector=nonexistent%3D", "", remove),
		"verbs/delete":           text(`"uid":"[^"]*"`, `"uid":""`, remove),
		"verbs/deletecollection": query("%2C%21kept", "", remove),
		"verbs/update": requests(func(request *http.Request) {
			request.Method = http.MethodPatch
			request.Header.Set("Content-Type", "application/merge-patch+json")
		}, put, without("dryRun"), sends(`second":"changed"`)),
		"verbs/patch-json":      body(`{"op":"remove","path":"/metadata/annotations/conformance.example.com~1first"},`, "", patch),
		"verbs/patch-merge":     body(`"conformance.example.com/first":null,`, "", patch),
		"verbs/patch-strategic": body(`"$patch":"replace",`, "", patch),
		"verbs/patch-refused":   code(http.StatusUnprocessableEntity, http.StatusInternalServerError, patch, sends(`"path":"/metadata/name"`)),

		"resourceVersion/comparable": text(`"resourceVersion":"`, `"resourceVersion":"v`, reads, with("fieldSelector", "")),
		"resourceVersion/consistent": old(reads, with("limit", "500")),
		"resourceVersion/any":        text(items, noItems, reads, with("resourceVersion", "0")),
		"resourceVersion/exact":      query(`resourceVersion=\d+&resourceVersionMatch=Exact`, "", reads, with("limit", "10")),
		"resourceVersion/future":     code(http.StatusGatewayTimeout, http.StatusInternalServerError, reads, with("resourceVersion", "")),
		"resourceVersion/refused":    code(http.StatusUnprocessableEntity, http.StatusBadRequest, reads, with("resourceVersionMatch", "Nearly")),
		"resourceVersion/pages":      text(items, noItems, reads, with("continue", ""), with("limit", "2")),
		"resourceVersion/remaining":  text(`"remainingItemCount":\d+`, `"remainingItemCount":99`, reads, with("limit", "1")),
		"resourceVersion/expired":    fails(reads, with("resourceVersion", "1"), with("resourceVersionMatch", "Exact"), without("limit"), without("continue")),

		"watch/order":          text(`^\{"type":"DELETED"(.*)"resourceVersion":"\d+"(.*example\.com/changed")`, `{"type":"DELETED"${1}"resourceVersion":"1"${2}`, watches),
		"watch/resume":         text(`^\{"type":"MODIFIED".*`, "", watches, with("resourceVersion", ""), without("allowWatchBookmarks"), not(with("resourceVersion", "0"))),
		"watch/start":          text(`"type":"ADDED"`, `"type":"MODIFIED"`, watches, with("resourceVersion", "0")),
		"watch/initial-events": text(`"k8s.io/initial-events-end"`, `"other"`, watches, with("sendInitialEvents", "true")),
		"watch/selectors":      text(`"type":"DELETED"`, `"type":"MODIFIED"`, watches, asks("menu%3Dyes")),
		"watch/bookmarks":      query("allowWatchBookmarks=true", "", watches, without("sendInitialEvents")),
		"watch/timeout":        query("timeoutSeconds=2&", "timeoutSeconds=600&", watches),
		"watch/expired":        text(`"code":410|"type":"ADDED"`, `"type":"ERROR"`, watches, with("resourceVersion", "1")),
		"watch/refused":        code(http.StatusUnprocessableEntity, http.StatusBadRequest, watches, with("resourceVersion", "1"), with("resourceVersionMatch", "NotOlderThan")),
		"watch/websocket":      header("Connection", "", watches),
		"watch/versions":       text(`/v\d+(alpha|beta)\d+","metadata"`, `/v0","metadata"`, watches, older),
		"watch/many":           many(),

		"writes/optimistic-lock":      code(http.StatusConflict, http.StatusInternalServerError, put, sends(`"uid":"`+noUID+`"`)),
		"writes/one-winner":           code(http.StatusConflict, http.StatusOK, put, sends(`/racer"`)),
		"writes/concurrent-patches":   code(http.StatusOK, http.StatusConflict, patch, sends(`/p3"`)),
		"writes/no-op":                body(`"labels":{`, `"labels":{"changed":"true",`, put, named("no-op")),
		"writes/delete-preconditions": body(`"preconditions"`, `"unknown"`, remove, without("dryRun")),
		"writes/generation":           text(`"generation":\d+`, `"generation":7`, put, sends(`"generation":7`)),
		"writes/metadata":             code(http.StatusUnprocessableEntity, http.StatusConflict, patch, sends(`{"metadata":{"uid":"other"}}`)),
		"writes/owner-references":     code(http.StatusUnprocessableEntity, http.StatusBadRequest, post, sends(`"ownerReferences"`), sends(`"kind":"ConfigMap"`)),
		"writes/status":               text(`"generation":\d+`, `"generation":99`, put, path("/status$"), without("dryRun")),

		"writes/dry-run-create":           wet(post, sends(trial)),
		"writes/dry-run-update":           wet(put, path("-dry$"), sends(trial)),
		"writes/dry-run-patch":            wet(patch, path("-dry$"), sends(trial), without("fieldManager")),
		"writes/dry-run-apply":            wet(patch, path("-dry$"), sends(trial), with("fieldManager", "conformance")),
		"writes/dry-run-delete":           wet(remove, named("dry")),
		"writes/dry-run-deletecollection": wet(remove, with("labelSelector", ""), with("propagationPolicy", "")),
		"writes/dry-run-status":           wet(put, path("-dry/status$")),
		"writes/dry-run-scale":            wet(patch, path("-dry/scale$")),

		"writes/field-validation":   query("fieldValidation=Strict", "fieldValidation=Ignore"),
		"writes/pruning":            text(`"metadata":\{`, `"nonexistent":true,"metadata":{`, get, named("pruned")),
		"writes/defaulting":         text(`"spec":`, `"other":`, post, sends(":null")),
		"writes/finalizers":         code(http.StatusUnprocessableEntity, http.StatusInternalServerError, patch, sends("conformance.example.com/more")),
		"writes/garbage-absent":     body(`"ownerReferences"`, `"unknown"`, post, sends(`"name":"absent"`)),
		"writes/garbage-background": propagates("Background", "Orphan"),
		"writes/garbage-foreground": propagates("Foreground", "Background"),
		"writes/garbage-orphan":     propagates("Orphan", "Background"),
		"writes/namespace-missing":  text(details, hidden, post, path("/namespaces/[^/]+-missing/")),
		"writes/namespace-deletion": text("NamespaceTerminating", "Other", post),
		"writes/quota":              text("exceeded quota", "refused", post),

		"apply/create":            code(http.StatusCreated, http.StatusOK, applies("alice", "create")),
		"apply/refused":           code(http.StatusConflict, http.StatusOK, applies("alice", "refused")),
		"apply/ownership":         text(`"f:spec":`, `"f:other":`, applies("alice", "ownership")),
		"apply/shared":            text(`example.com/yours":"1"`, `example.com/yours":"2"`, applies("bob", "shared")),
		"apply/conflict":          query("$", "&force=true", applies("bob", "conflict")),
		"apply/force":             query("force=true", "", applies("bob", "force")),
		"apply/update":            query("fieldManager=carol", "", put),
		"apply/clear":             text(`"metadata":\{`, `"metadata":{`+owner("gone", "v0")+`],`, patch, named("clear"), without("fieldManager")),
		"apply/gone-version":      text(`"managedFields":\[`, owner("gone", "v0gone")+",", applies("alice", "gone-version")),
		"apply/versions":          text(`"managedFields":\[`, owner("alice", "v0")+",", applies("alice", "versions"), older),
		"apply/versions-conflict": query("$", "&force=true", applies("bob", "versions-conflict"), older),
		"apply/status":            text(`,"subresource":"status"`, "", patch, with("fieldManager", "baker")),
		"apply/scale":             text(details, hidden, applies("alice", "scale")),

		"versions/round-trip": text(`"metadata":\{`, `"other":true,"metadata":{`, put, older),
		"versions/create":     fails(post, path("^/apis/"), older),
		"versions/one-object": text(version, another, get, older, named("one-object")),
		"versions/body":       code(http.StatusBadRequest, http.StatusInternalServerError, post, not(older), sends(`/v1beta1","kind"`)),
		"versions/storage":    text(`"storageVersionHash":"[^"]*"`, `"storageVersionHash":"other"`, ofVersion, older),

		"forms/accept":      header("Accept", asJSON, has("Accept", "^application/yaml, ")),
		"forms/yaml":        text("^kind:", "broken: true\nkind:", post, has("Accept", "^application/yaml")),
		"forms/protobuf":    header("Accept", asJSON, has("Accept", "^application/vnd.kubernetes.protobuf")),
		"forms/cbor":        header("Accept", asJSON, has("Accept", "^application/cbor")),
		"forms/table":       text(`"cells":\[`, `"cells":["",`, has("Accept", asTable), with("includeObject", "None")),
		"forms/table-watch": text(`"columnDefinitions":\[`, `"columns":[`, watches, has("Accept", asTable)),
		"forms/metadata":    header("Accept", asJSON, watches, has("Accept", asMetadata)),
		"forms/gzip":        header("Accept-Encoding", "", has("Accept-Encoding", "gzip")),

		"security/denied-anonymous": admits("", remove, not(token), not(impersonated), not(forged)),
		"security/denied-user":      acts("-nobody", remove),
		"security/denied-account":   admits("-nobody-account", remove),
		"security/denied-first":     code(http.StatusForbidden, http.StatusNotFound, put, has("Impersonate-User", "-stranger$")),
		"security/one-verb":         admits("-verb-", put),
		"security/one-name":         admits("-named", get, path("-b")),
		"security/one-namespace":    admits("-local", post),
		"security/apply-creates":    admits("-patcher", patch),
		"security/impersonation":    admits("", remove, token, impersonated),
		"security/forged-headers":   acts("-forger", forged),
		"security/direct-anonymous": admits("", forged, not(token), not(impersonated)),
		"security/direct-forged":    admits("", forged, token),
		"security/direct-paths":     admits("", path("^/metrics"), not(token)),
		"security/audit": answers(func(_ *http.Request, response *http.Response) { response.Header.Del("Audit-Id") },
			patch, has("Impersonate-User", "-audited$")),
		"security/validating-policy":  acts("-validating-policy", patch),
		"security/mutating-policy":    acts("-mutating-policy", put),
		"security/validating-webhook": acts("-validating-webhook", remove),
		"security/mutating-webhook":   acts("-mutating-webhook", patch),
		"security/webhook-failure":    acts("-webhook-fail", post),
		"security/identity":           header("Impersonate-Uid", "", has("Impersonate-User", "-identity$")),

		"canceled/half-body":   requests(endBody, post),
		"canceled/survived":    survived,
		"canceled/slow-reader": text(`.*"padding":"7x.*`, "", watches, with("allowWatchBookmarks", "false")),

		"hostile/broken-json": plain(sends(`{"a":NaN}`)),
		"hostile/deep":        fails(sends(strings.Repeat("[", 20_000)), has("Content-Type", "^application/json$")),
		"hostile/wide":        fails(sends(strings.Repeat("x", 4<<20))),
		"hostile/yaml":        fails(sends("a: &a [*a]")),
		"hostile/protobuf":    plain(has("Content-Type", "^application/vnd.kubernetes.protobuf$"), sends("k8t\x00")),
		"hostile/cbor":        fails(has("Content-Type", "^application/cbor$"), sends("\xd9\xd9\xf7")),
		"hostile/metadata":    fails(sends(`"labels":{"a b":"c"}`)),
		"hostile/numbers":     fails(sends("1e-999999999")),
		"hostile/paths":       redirects(path("%2e%2e")),
		"hostile/json-patch":  fails(has("Content-Type", "^application/json-patch"), sends("explode")),
		"hostile/merge-patch": fails(has("Content-Type", "^application/merge-patch"), sends(`{"apiVersion":"a/b/c"}`)),
		"hostile/apply":       fails(has("Content-Type", "^application/apply-patch"), func(request *http.Request) bool { return string(sent(request)) == "word" }),
	}
}

// old repeats the answer to the first request of the same target.
func old(matches ...match) Transport {
	var first sync.Map
	return answers(func(request *http.Request, response *http.Response) {
		whole(response, func(body []byte) []byte {
			before, _ := first.LoadOrStore(request.URL.String(), body)
			return before.([]byte)
		})
	}, matches...)
}

// many leaves the last of many objects out of one watch.
func many() Transport {
	var events atomic.Int64
	return answers(func(_ *http.Request, response *http.Response) {
		lines(response, func(line []byte) []byte {
			if bytes.Contains(line, []byte(`-19","namespace"`)) && events.Add(1) == 10 {
				return nil
			}
			return line
		})
	}, watches, without("resourceVersion"))
}

// admits lets requests succeed that are refused with a text.
func admits(marker string, matches ...match) Transport {
	return answers(func(_ *http.Request, response *http.Response) {
		whole(response, func(body []byte) []byte {
			refused := response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized
			if refused && bytes.Contains(body, []byte(marker)) {
				response.StatusCode = http.StatusOK
			}
			return body
		})
	}, matches...)
}

// acts sends requests of impersonated users whose names end in a suffix as the run's own user.
func acts(suffix string, matches ...match) Transport {
	return requests(func(request *http.Request) {
		for name := range request.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				request.Header.Del(name)
			}
		}
	}, append(matches, has("Impersonate-User", suffix+"$"))...)
}

// endBody takes an incomplete body for the whole.
func endBody(request *http.Request) {
	came, err := io.ReadAll(request.Body)
	if err != nil {
		request.ContentLength = int64(len(came))
	}
	request.Body = io.NopCloser(bytes.NewReader(came))
}

// survived fails all requests of an object after a client has canceled one.
func survived(next http.RoundTripper) http.RoundTripper {
	var gone atomic.Bool
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		switch {
		case !strings.Contains(request.URL.Path, "-gone"):
		case err != nil && context.Cause(request.Context()) != nil:
			gone.Store(true)
		case err == nil && gone.Load():
			response.StatusCode = http.StatusServiceUnavailable
		}
		return response, err
	})
}
