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

package migrate

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// fillTimeout bounds the wait for kube-apiserver to read the objects.
const fillTimeout = 2 * time.Minute

// fillCaches makes kube-apiserver read the objects of all versions into its watch caches, while
// clients still use the server. By itself it does so when the first client comes, and answers
// lists with 429 until it has. If it can't be made to, that is what happens.
func (m *Migration) fillCaches(ctx context.Context, found []definition) {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	for _, d := range found {
		for _, version := range d.served() {
			if version == BypassVersion {
				continue
			}
			if err := m.fillCache(ctx, d, version); err != nil {
				m.progress("kube-apiserver has not read the %s in the version %s yet, and may have clients try again until it has: %v", d.Name, version, err)
			}
		}
	}
}

// fillCache lists nothing from a cache, again and again until the cache has been filled.
func (m *Migration) fillCache(ctx context.Context, d definition, version string) error {
	for {
		err := m.kube.Discovery().RESTClient().Get().AbsPath(localPath(d, version)).
			Param("resourceVersion", "0").Param("labelSelector", "no-object-has-this").MaxRetries(0).Do(ctx).Error()
		if !apierrors.IsTooManyRequests(err) {
			return err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// localPath leads to what kube-apiserver has itself, also while the APIServices lead to a server. It
// looks for the definition by the name of the resource, a dot and the name of the group, and
// only the latter has an APIService: things.apps of example.com are things of apps.example.com.
func localPath(d definition, version string) string {
	head, rest, _ := strings.Cut(d.Spec.Group, ".")
	return "/apis/" + rest + "/" + version + "/" + d.Spec.Names.Plural + "." + head
}
