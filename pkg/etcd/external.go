//go:build externaletcd

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

package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// embedded says that an etcd can run in this process.
const embedded = false

// Etcd is never started: this program has no etcd inside.
type Etcd struct{}

// Start returns an error.
func (Config) Start(context.Context) (*Etcd, error) { return nil, errExternal }

// Err is never ready.
func (*Etcd) Err() <-chan error { return nil }

// CheckAlarms has nothing to check.
func (*Etcd) CheckAlarms() error { return nil }

// Close has nothing to do.
func (*Etcd) Close() error { return nil }

func (Config) run(_ context.Context, lock *fileutil.LockedFile) (*Etcd, error) {
	return nil, errors.Join(errExternal, lock.Close())
}

func (Member) makeDir(string, string, uint64) error { return errExternal }
