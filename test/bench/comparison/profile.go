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
	"strings"
)

const (
	// profiled is how many seconds of each verb a profile has.
	profiled = 10
	// enough is how many objects there are to do something with: more than a server creates
	// in that time.
	enough = 100_000
)

// profile writes a profile of the server's processor time at each verb and each way to list,
// <contender>-<verb>.pprof.
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
		made := enough
		for _, verb := range verbs {
			do := verb.do(c, "object")
			if verb.name == "delete" {
				// The lists are of what has been created and not deleted yet.
				for _, list := range lists {
					if read := list.of(c); read != nil {
						if _, err := b.profileTask(ctx, direct[0], b.at(c, clients[:readers]), c, list.name, dir, enough, func(ctx context.Context, client client, _ int) error { return read(ctx, client) }); err != nil {
							return err
						}
					}
				}
			}
			limit := made
			if verb.again {
				limit = enough
			}
			done, err := b.profileTask(ctx, direct[0], b.at(c, clients), c, verb.name, dir, limit, func(ctx context.Context, client client, n int) error { return do(ctx, client, n%made) })
			if err != nil {
				return err
			}
			if verb.name == "create" {
				made = done
			}
		}
	}
	return nil
}

// profileTask repeats a task, at most as often as the limit says, while the server makes a
// profile of itself, and returns how often.
func (b *bench) profileTask(ctx context.Context, server client, clients []client, c *contender, name, dir string, limit int, do task) (done int, err error) {
	progress(fmt.Sprintf("Profiling %s of %s for %d s", name, c.name, profiled))
	type answer struct {
		profile []byte
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		profile, err := server.do(ctx, http.MethodGet, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profiled), "*/*", nil)
		answered <- answer{profile, err}
	}()
	for batch := 10 * len(clients); len(answered) == 0 && done+batch <= limit; done += batch {
		if _, _, err := drive(ctx, clients, batch, func(ctx context.Context, c client, n int) error { return do(ctx, c, done+n) }); err != nil {
			return 0, fmt.Errorf("%s: %s: %w", c.name, name, err)
		}
	}
	last := <-answered
	if last.err != nil {
		return 0, last.err
	}
	return done, os.WriteFile(filepath.Join(dir, c.name+"-"+strings.ReplaceAll(name, " ", "-")+".pprof"), last.profile, 0o644)
}
