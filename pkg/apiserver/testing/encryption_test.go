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

package testing

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Encrypted objects are readable in etcd by their keys only, and clients notice nothing.
func TestEncryption(t *testing.T) {
	t.Parallel()
	config := file(t, fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [machines.workshop.example.com], providers: [{secretbox: {keys: [{name: mine, secret: %s}]}}]}]
`, base64.StdEncoding.EncodeToString(make([]byte, 32))))
	server := start(t, "--encryption-provider-config="+config, "--run-controllers=false")
	create(t, server.ClientConfig, "drill")
	_, code := get(t, server.ClientConfig, machinesPath+"/drill")
	require.Equal(t, http.StatusOK, code)

	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(server.Dir, "etcd.sock")}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer etcd.Close()
	stored, err := etcd.Get(t.Context(), "/registry/workshop.example.com/machines/default/drill")
	require.NoError(t, err)
	require.Len(t, stored.Kvs, 1)
	value := string(stored.Kvs[0].Value)
	require.True(t, strings.HasPrefix(value, "checksum:v1:"), "%q", value)
	require.Contains(t, value, "k8s:enc:secretbox:v1:mine:")
	require.NotContains(t, value, "drill")
}
