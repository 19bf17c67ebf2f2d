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

package cmd

import (
	"fmt"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd has the flags of an etcd other than the server's.
type Etcd struct {
	Servers []string
	tls     transport.TLSInfo
	prefix  string
}

// AddFlags adds the flags, whose names begin with a prefix such as "etcd-". The other texts
// are their usages.
func (e *Etcd) AddFlags(flags *pflag.FlagSet, prefix, servers, cafile, certfile, keyfile string) {
	e.prefix = prefix
	flags.StringSliceVar(&e.Servers, prefix+"servers", nil, servers)
	flags.StringVar(&e.tls.TrustedCAFile, prefix+"cafile", "", cafile)
	flags.StringVar(&e.tls.CertFile, prefix+"certfile", "", certfile)
	flags.StringVar(&e.tls.KeyFile, prefix+"keyfile", "", keyfile)
}

// Client returns a client of the etcd. It returns nil if no servers are given.
func (e *Etcd) Client() (*clientv3.Client, error) {
	if len(e.Servers) == 0 {
		return nil, nil
	}
	config := clientv3.Config{Endpoints: e.Servers, Logger: zap.NewNop()}
	if !e.tls.Empty() || e.tls.TrustedCAFile != "" {
		var err error
		if config.TLS, err = e.tls.ClientConfig(); err != nil {
			return nil, fmt.Errorf("--%[1]scafile, --%[1]scertfile or --%[1]skeyfile can't be used: %[2]w", e.prefix, err)
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("--%sservers can't be used: %w", e.prefix, err)
	}
	return client, nil
}
