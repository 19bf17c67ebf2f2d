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

package filters

import (
	"net/http"
	"strings"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// ResolveRequestInfo returns a resolver that treats malformed paths of resources like any other
// path. They are authorized as such and not found.
//
// For /apis/<group>/<version>/watch the library would answer 500.
// Upstream fault 17.
//
// For /apis/example.com/v1/things.apps it would serve things of apps.example.com to users with
// permission to read things.apps of example.com. It finds a CustomResourceDefinition by the
// resource and the group in one text.
// Upstream fault 81.
func ResolveRequestInfo(delegate genericapirequest.RequestInfoResolver) genericapirequest.RequestInfoResolver {
	return requestInfoResolver{delegate}
}

type requestInfoResolver struct {
	genericapirequest.RequestInfoResolver
}

func (r requestInfoResolver) NewRequestInfo(req *http.Request) (*genericapirequest.RequestInfo, error) {
	info, err := r.RequestInfoResolver.NewRequestInfo(req)
	if err != nil || strings.Contains(info.Resource, ".") {
		//nolint:nilerr // The error says only that the path is not one of a resource.
		return &genericapirequest.RequestInfo{Path: req.URL.Path, Verb: strings.ToLower(req.Method)}, nil
	}
	return info, nil
}
