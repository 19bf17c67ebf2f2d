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

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

const (
	// profiled is how many seconds of each verb a profile has.
	profiled = 10
	// enough is how many objects there are to do something with: more than a server creates
	// in that time.
	enough = 100_000
)

// profile writes a profile of the server's processor time at each verb, <verb>.pprof.
func (b *bench) profile(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	direct, err := newClients(b.cp.RESTConfig(), 1)
	if err != nil {
		return err
	}
	clients, err := newClients(b.identities[0].config, many)
	if err != nil {
		return err
	}
	for _, c := range b.contenders {
		if c.server == nil {
			continue
		}
		direct[0].host = c.server.URL()
		objects := enough
		for _, verb := range verbs {
			progress(fmt.Sprintf("Profiling %s of %s for %d s", verb.name, c.name, profiled))
			done, err := b.profileVerb(ctx, direct[0], clients, objects, verb, c, filepath.Join(dir, c.name+"-"+verb.name+".pprof"))
			if err != nil {
				return fmt.Errorf("%s: %s: %w", c.name, verb.name, err)
			}
			if verb.name == "create" {
				objects = done
			}
		}
	}
	return nil
}

// profileVerb repeats tasks while the server makes a profile of itself, and returns how many
// were done.
func (b *bench) profileVerb(ctx context.Context, server client, clients []client, objects int, verb verb, c *contender, file string) (done int, err error) {
	type answer struct {
		profile []byte
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		profile, err := server.do(ctx, http.MethodGet, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profiled), "*/*", nil)
		answered <- answer{profile, err}
	}()
	const batch = 10 * many
	for do := verb.do(c, "object"); len(answered) == 0 && (verb.again || done+batch <= objects); done += batch {
		first := done % max(objects-batch+1, 1)
		if _, _, err := drive(ctx, clients, batch, func(ctx context.Context, c client, n int) error { return do(ctx, c, first+n) }); err != nil {
			return 0, err
		}
	}
	last := <-answered
	if last.err != nil {
		return 0, last.err
	}
	return done, os.WriteFile(file, last.profile, 0o644)
}
