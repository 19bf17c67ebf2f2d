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

package faults

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// snapshot saves the stored objects while clients write, and returns a check of them. They
// have to be the objects of one moment while they were saved.
func (c *campaign) snapshot(load *workload, flags ...string) (file string, check func(server *controlplane.Component)) {
	file = filepath.Join(c.TempDir(), fmt.Sprintf("%d.snapshot", time.Now().UnixNano()))
	c.Cleanup(func() { _ = os.Remove(file) })
	epoch, called := load.epoch.Load(), load.history.now()
	code, _, stderr := framework.Tool(c.T, c.cp, nil, append([]string{"snapshot", "save", file}, flags...)...)
	require.Zero(c, code, stderr)
	returned := load.history.now()
	return file, func(server *controlplane.Component) {
		list, err := framework.ClientAt(c.T, c.cp, server).RestaurantV1().Toppings().List(c.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		values := map[string]int{}
		for i := range list.Items {
			values[list.Items[i].Name] = valueOf(&list.Items[i])
		}
		for i := range objectsPerEpoch {
			name := objectName(epoch, i)
			res := response{answer: answerNotFound}
			if value, ok := values[name]; ok {
				res = response{answerOK, value}
			}
			load.history.append(porcupine.Operation{ClientId: clients, Input: request{verb: verbGet, name: name}, Output: res, Call: called, Return: returned})
		}
	}
}

// restore restores a snapshot into a directory, which then is a server's.
func (c *campaign) restore(file, dir string, server *controlplane.Component) {
	code, _, stderr := framework.Tool(c.T, c.cp, nil, "snapshot", "restore", file, "--data-dir="+dir)
	require.Zero(c, code, stderr)
	server.SetFlags("--data-dir=" + dir)
	require.NoError(c, server.Start(c.Context()))
}

// drillFault saves a snapshot of etcd under load, and starts another server on it.
func (c *campaign) drillFault(etcd *controlplane.Component) fault {
	drill, err := c.cp.NewAPIServer("drill", controlplane.ServerConfig{})
	require.NoError(c, err)
	return fault{"save a snapshot, and restore it beside", func() {
		file, check := c.snapshot(c.load, "--etcd-servers="+etcd.URL(), "--etcd-cafile="+c.cp.PKI.ServingCA.File,
			"--etcd-certfile="+c.certificate("etcd-client"), "--etcd-keyfile="+c.key("etcd-client"))
		dir := filepath.Join(drill.Dir(), "data")
		c.restore(file, dir, drill)
		check(drill)
		require.NoError(c, drill.Stop())
		require.NoError(c, os.RemoveAll(dir))
	}}
}

// restoreFault takes a server with an etcd in its process back to a snapshot that was saved
// under load: later writes are gone.
func (c *campaign) restoreFault(server *controlplane.Component) fault {
	return fault{"restore a snapshot of " + server.Name(), func() {
		file, check := c.snapshot(c.load, "--data-dir="+c.data)
		c.sleep(longestCalm)
		// Lost values are no longer written by anybody, and never read again.
		c.load.gate.Lock()
		defer c.load.gate.Unlock()
		server.Kill()
		old := c.data
		c.data = filepath.Join(filepath.Dir(old), strconv.Itoa(c.random.IntN(math.MaxInt32)))
		c.restore(file, c.data, server)
		check(server)
		require.NoError(c, os.RemoveAll(old))
		c.load.epoch.Add(1)
	}}
}
