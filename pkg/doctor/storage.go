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
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

const (
	// scanPage is how many objects are read at a time.
	scanPage = 500
	// maxScanned is how many objects of a resource are read, and scanTime how long that may take
	// for all resources.
	maxScanned = 100_000
	scanTime   = 15 * time.Second
)

// checkStorage checks the versions and the keys of stored objects.
func (e *examination) checkStorage(ctx context.Context) []Finding {
	if away := e.etcdAway(); away != nil {
		return away
	}
	stores, err := e.Stores(ctx)
	if err != nil {
		return []Finding{skipped("what the server stores can't be found out (%v)", err)}
	}
	if len(stores) == 0 {
		return []Finding{ok("the server stores nothing")}
	}
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	var results []Finding
	for _, store := range stores {
		results = append(results, e.checkStored(ctx, &store)...)
	}
	return results
}

func (e *examination) checkStored(ctx context.Context, store *keys.Objects) []Finding {
	servers := e.EtcdServers
	if len(store.Servers) > 0 {
		servers = store.Servers
	}
	client, err := e.EtcdClient(servers...)
	if err != nil {
		return []Finding{failure(fmt.Sprintf("the etcd of %s can't be reached (%v)", store.GroupResource, err), "check the flags of etcd")}
	}
	defer func() { _ = client.Close() }()
	found := scan{versions: map[string]int{}}
	if err := found.read(ctx, client, store); err != nil && ctx.Err() == nil {
		return []Finding{failure(fmt.Sprintf("the stored %s can't be read (%v)", store.GroupResource, err), "see the log of etcd")}
	}
	return found.results(store)
}

// scan is the result of reading a resource.
type scan struct {
	// objects is the number of objects that were read, and more says that there are others.
	objects int
	more    bool
	// versions are the numbers of objects by stored version. stale counts objects under an old key,
	// or not encrypted although they would be now.
	versions map[string]int
	stale    int
	// unreadable counts objects that can't be read, and first is the first error.
	unreadable int
	first      error
}

// read reads the objects at one revision, but at most maxScanned.
func (s *scan) read(ctx context.Context, client *clientv3.Client, store *keys.Objects) error {
	s.more = true
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(store.Prefix))
	revision := int64(0)
	for key := store.Prefix; s.objects < maxScanned; key += "\x00" {
		response, err := client.Get(ctx, key, end, clientv3.WithLimit(scanPage), clientv3.WithRev(revision))
		if err != nil {
			return err
		}
		revision = response.Header.Revision
		for _, kv := range response.Kvs {
			key = string(kv.Key)
			s.look(ctx, store, key, kv.Value)
		}
		if !response.More {
			s.more = false
			return nil
		}
	}
	return nil
}

func (s *scan) look(ctx context.Context, store *keys.Objects, key string, encrypted []byte) {
	s.objects++
	var data []byte
	stale, version := false, ""
	opened, err := etcd.OpenValue(key, encrypted)
	if err == nil {
		data, stale, err = store.Encryption.TransformFromStorage(ctx, opened, value.DefaultContext(key))
	}
	if err == nil {
		version, err = keys.VersionOf(data)
	}
	if err != nil {
		s.unreadable++
		if s.first == nil {
			s.first = fmt.Errorf("%s: %w", key, err)
		}
		return
	}
	s.versions[version]++
	if stale {
		s.stale++
	}
}

// rewrite is a fix that stores objects again.
const rewrite = "rewrite them by a StorageVersionMigration, see \"Rewrite what is stored\" in docs/operations/upgrade.md"

// results returns the findings of a scan.
func (s *scan) results(store *keys.Objects) []Finding {
	of := fmt.Sprintf("of %d %s", s.objects, store.GroupResource)
	if s.more {
		of = fmt.Sprintf("of the first %d %s", s.objects, store.GroupResource)
	}
	var results []Finding
	if s.unreadable > 0 {
		results = append(results, failure(fmt.Sprintf("%d %s can't be read, such as %v", s.unreadable, of, s.first), "check --encryption-provider-config: the keys under which objects are stored must be in it"))
	}
	old := maps.Clone(s.versions)
	delete(old, store.StorageVersion)
	for _, version := range slices.Sorted(maps.Keys(old)) {
		results = append(results, warning(fmt.Sprintf("%d %s are stored in the version %s, and not in %s, so that no release may drop %s", old[version], of, version, store.StorageVersion, version), rewrite))
	}
	if s.stale > 0 {
		results = append(results, warning(fmt.Sprintf("%d %s are stored under an old key, or not encrypted, so that this may not be taken out of --encryption-provider-config", s.stale, of), rewrite))
	}
	if len(results) > 0 {
		return results
	}
	if s.more {
		return []Finding{skipped("all %s are stored in the version %s and under the present key; the others were not looked at", strings.TrimPrefix(of, "of "), store.StorageVersion)}
	}
	result := ok("all %d %s are stored in the version %s and under the present key", s.objects, store.GroupResource, store.StorageVersion)
	droppable := slices.DeleteFunc(slices.Clone(store.Versions), func(version string) bool { return version == store.StorageVersion })
	if slices.Sort(droppable); len(droppable) > 0 {
		result.Cause += fmt.Sprintf(": no stored object is in %s any more, so that a release may drop it, once no older release runs that writes it", strings.Join(droppable, " or "))
	}
	return []Finding{result}
}
