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

package snapshot

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// once is a restore that pods begin with.
type once struct {
	revision int64
	member   etcd.Member
}

func (o *once) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&o.revision, "revision", 0, "Revision at which the restored data goes on, later than any before: the number of microseconds since 1970, which is the default. All members of an etcd need the same.")
	flags.StringVar(&o.member.Name, "member", "", "Name of the member of a separate etcd that the directory is for, its --name.")
	flags.StringVar(&o.member.InitialCluster, "initial-cluster", "", "All members of that etcd with their peer URLs, as in their --initial-cluster.")
}

func (o *once) validate() error {
	switch {
	case o.revision < 0:
		return errors.New("--revision must not be negative")
	case (o.member.Name == "") != (o.member.InitialCluster == ""):
		return errors.New("--member and --initial-cluster need each other")
	case o.member.Name != "" && o.revision == 0:
		return errors.New("--member needs --revision, the same for all members: use $(date +%s%6N) once")
	}
	return nil
}

func (o *once) restore(config etcd.Config, in io.Reader, total int64, progress etcd.Progress) (etcd.Snapshot, bool, error) {
	if o.member.Name == "" {
		return config.RestoreOnce(o.revision, in, total, progress)
	}
	o.member.Dir = config.Dir
	return o.member.RestoreOnce(o.revision, in, total, progress)
}
