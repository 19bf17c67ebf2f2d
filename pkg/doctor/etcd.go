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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

const (
	// slowEtcd is much longer than a healthy etcd takes to answer. etcd's own alert is at half of
	// that, for writes to disk.
	slowEtcd = 100 * time.Millisecond
	// etcdSamples is how many answers are timed.
	etcdSamples = 9
	// fullEtcd is the used percentage of the quota that needs action.
	fullEtcd = 80
	// etcdKey is read, whether it exists or not.
	etcdKey = "health"
	// etcdTimeout bounds every request.
	etcdTimeout = 3 * time.Second
)

// checkEtcd checks the members of etcd and their alarms.
func (e *examination) checkEtcd(ctx context.Context) []Finding {
	if away := e.etcdAway(); away != nil {
		return away
	}
	var results []Finding
	for _, endpoint := range e.EtcdServers {
		results = append(results, e.checkMember(ctx, endpoint)...)
	}
	return append(results, e.checkAlarms(ctx)...)
}

// etcdAway returns a finding if there is an embedded etcd that can't be reached from here.
func (e *examination) etcdAway() []Finding {
	if e.EtcdSocket == "" {
		return nil
	}
	_, err := os.Stat(e.EtcdSocket)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return []Finding{{Status: Skipped, Cause: fmt.Sprintf("the embedded etcd can't be looked at from here (%v)", err), Fix: "run this in the server's pod and as its user, with the server's --data-dir, or name an external etcd by --etcd-servers"}}
}

func (e *examination) checkMember(ctx context.Context, endpoint string) []Finding {
	member := "etcd at " + endpoint
	status, latency, err := e.sample(ctx, endpoint)
	if err != nil {
		return []Finding{failure(fmt.Sprintf("%s does not answer (%v)", member, err), "check that it runs, its address in --etcd-servers, and --etcd-cafile, --etcd-certfile and --etcd-keyfile")}
	}
	var results []Finding
	if latency > slowEtcd {
		results = append(results, warning(fmt.Sprintf("%s takes %s for an answer", member, latency.Round(time.Millisecond)), "give it a faster disk, or a shorter way to it"))
	}
	if quota := status.DbSizeQuota; quota > 0 && status.DbSize*100 >= quota*fullEtcd {
		results = append(results, warning(fmt.Sprintf("%s has used %d %% of its quota of %.1f MiB", member, status.DbSize*100/quota, mebibytes(quota)), "delete objects, defragment it, or raise its quota: above it, nothing can be written"))
	}
	return orOK(results, "%s (%s) answers in %s, and has used %.1f of %.1f MiB", member, status.Version, latency.Round(time.Microsecond), mebibytes(status.DbSize), mebibytes(status.DbSizeQuota))
}

// sample returns the status of a member and the median time of its answers. It makes requests that
// the member has to agree upon with the others.
func (e *examination) sample(ctx context.Context, endpoint string) (*clientv3.StatusResponse, time.Duration, error) {
	client, err := e.EtcdClient(endpoint)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = client.Close() }()
	var times []time.Duration
	for range etcdSamples + 1 {
		ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
		began := time.Now()
		err := etcd.Read(ctx, client, etcdKey)
		cancel()
		if err != nil {
			return nil, 0, err
		}
		times = append(times, time.Since(began))
	}
	times = times[1:] // The first request has made the connection.
	slices.Sort(times)
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	status, err := client.Status(ctx, endpoint)
	return status, times[len(times)/2], err
}

// checkAlarms looks for alarms, which any member knows of all.
func (e *examination) checkAlarms(ctx context.Context) []Finding {
	client, err := e.EtcdClient(e.EtcdServers...)
	if err != nil {
		return nil // Each member has this error, and it has been reported.
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	list, err := client.AlarmList(ctx)
	if err != nil {
		return nil // See above.
	}
	var results []Finding
	for _, alarm := range list.Alarms {
		member := fmt.Sprintf("the member %x of etcd", alarm.MemberID)
		switch alarm.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			results = append(results, failure(member+" has reached its quota, and takes no writes", "delete objects, compact and defragment it or raise its quota, and disarm the alarm"))
		case etcdserverpb.AlarmType_CORRUPT:
			results = append(results, failure("the data of "+member+" is corrupt", "replace the member, or restore a backup"))
		}
	}
	return results
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
