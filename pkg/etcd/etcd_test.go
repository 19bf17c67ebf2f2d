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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sync/errgroup"
)

const testQuota = 64 << 20

func start(t *testing.T, config Config) *Etcd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	etcd, err := config.Start(ctx)
	require.NoError(t, err)
	return etcd
}

func closed(t *testing.T, etcd *Etcd) {
	t.Helper()
	assert.NoError(t, etcd.Close())
}

func newClient(t *testing.T, config Config) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}, DialTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// An object that was as large as its etcd allows could not be written here, because of its checksum.
func TestChecksumOfTheLargestObject(t *testing.T) {
	config := Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: testQuota}
	etcd := start(t, config)
	defer closed(t, etcd)
	client := newClient(t, config)
	const key = "/registry/example.com/things/default/large"
	for name, test := range map[string]struct {
		size int
		want error
	}{
		"the largest request of another etcd": {embed.DefaultMaxRequestBytes, nil},
		"a larger one":                        {maxRequestBytes, rpctypes.ErrRequestTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Put(t.Context(), key, string(SealValue(key, make([]byte, test.size))))
			if !errors.Is(err, test.want) {
				assert.Failf(t, "unexpected", "got %v, want %v", err, test.want)
			}
		})
	}
}

func TestOnlyTheUserOfTheServerMayConnect(t *testing.T) {
	config := Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: testQuota}
	closed(t, start(t, config))
	// A volume's group gets permissions for everything in it.
	require.NoError(t, os.Chmod(config.path(dataDir), 0o775))
	defer closed(t, start(t, config))
	for path, want := range map[string]os.FileMode{
		config.Dir:      0o700,
		config.socket(): 0o600,
		// Here it is before it has that mode.
		filepath.Dir(config.embedConfig(nil).ListenClientUrls[0].Path): 0o700,
	} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm())
	}
}

// Only etcd itself removes it.
func TestTheSocketOfAKilledProcessIsReplaced(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	require.NoError(t, os.WriteFile(config.socket(), nil, 0o600))
	defer closed(t, start(t, config))
	_, err := newClient(t, config).Get(t.Context(), "key")
	assert.NoError(t, err)
}

func TestASecondServerWaitsForTheFirst(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	first := start(t, config)

	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := config.Start(short)
	require.EqualError(t, err, "the data directory "+config.Dir+" is in use by another server: stop it or choose another directory with --data-dir")

	var second *Etcd
	var starting errgroup.Group
	starting.Go(func() (err error) {
		second, err = config.Start(t.Context())
		return err
	})
	closed(t, first)
	require.NoError(t, starting.Wait())
	closed(t, second)
}

// TestASpaceAlarm fills the database and finds the alarm. After a start with enough space, the alarm is gone.
func TestASpaceAlarm(t *testing.T) {
	for name, test := range map[string]struct {
		deletes bool
		quota   int64
		recover bool
	}{
		// Much less than there are objects: how much of a full database is free depends
		// on how the writes came together.
		"with nothing changed": {false, 1 << 18, false},
		"with a higher quota":  {false, testQuota, true},
		"with objects deleted": {true, 1 << 20, true},
		"with both":            {true, testQuota, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: t.TempDir(), QuotaBytes: 1 << 20}
			etcd := start(t, config)
			if err := etcd.CheckAlarms(); err != nil {
				require.Failf(t, "unexpected", "got %v before the database is full", err)
			}
			client := newClient(t, config)
			value := strings.Repeat("x", 128<<10)
			var err error
			// Etcd learns its size when it commits, ten times a second: an idle machine writes a lot until then.
			for i := 0; i < 10_000 && err == nil; i++ {
				_, err = client.Put(t.Context(), string(rune('a'+i)), value)
			}
			if err == nil {
				require.Fail(t, "the database takes more than its quota")
			}
			want := "the database of the embedded etcd has reached its quota: delete objects and restart the server, which gives their space free, or restart it with a higher --etcd-quota-backend-bytes"
			require.EqualError(t, etcd.CheckAlarms(), want)
			if test.deletes {
				_, err = client.Delete(t.Context(), "", clientv3.WithPrefix())
				require.NoError(t, err)
			}
			closed(t, etcd)

			config.QuotaBytes = test.quota
			etcd = start(t, config)
			defer closed(t, etcd)
			if err := etcd.CheckAlarms(); (err == nil) != test.recover {
				assert.Failf(t, "unexpected", "got alarm %v", err)
			}
			if _, err := newClient(t, config).Put(t.Context(), "key", value); (err == nil) != test.recover {
				assert.Failf(t, "unexpected", "got %v from a write", err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   []error
	}{
		"valid": {Config{Dir: "/data", QuotaBytes: 1}, nil},
		"empty": {Config{}, []error{
			errors.New("--data-dir must name a directory for the embedded etcd, or --etcd-servers an external etcd"),
			errors.New("--etcd-quota-backend-bytes must be above 0, not 0"),
		}},
		"the longest path": {Config{Dir: strings.Repeat("x", 93), QuotaBytes: 1}, nil},
		"a path too long": {Config{Dir: strings.Repeat("x", 94), QuotaBytes: 1}, []error{
			errors.New(`--data-dir "` + strings.Repeat("x", 94) + `" is too long by 1 characters for the unix socket in it: choose a shorter path`),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.config.Validate(), cmp.Comparer(func(got, want error) bool { return got.Error() == want.Error() })); diff != "" {
				assert.Failf(t, "unexpected", "unexpected errors (-want +got):\n%s", diff)
			}
		})
	}
}
