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

package migrate

import (
	"fmt"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// kubeEtcd are the flags of kube-apiserver's etcd.
type kubeEtcd struct {
	servers []string
	prefix  string
	tls     transport.TLSInfo
}

func (k *kubeEtcd) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&k.servers, "kube-etcd-servers", nil, ""+
		"Addresses of kube-apiserver's etcd, such as https://10.0.0.1:2379. With it all objects keep their UIDs on the way back; otherwise kube-apiserver gives new ones to those that were created since.")
	flags.StringVar(&k.tls.TrustedCAFile, "kube-etcd-cafile", "", "Certificate authority of kube-apiserver's etcd.")
	flags.StringVar(&k.tls.CertFile, "kube-etcd-certfile", "", "Client certificate for kube-apiserver's etcd.")
	flags.StringVar(&k.tls.KeyFile, "kube-etcd-keyfile", "", "Key of that certificate.")
	flags.StringVar(&k.prefix, "kube-etcd-prefix", "/registry", "Prefix of the keys in kube-apiserver's etcd, as in its flag --etcd-prefix.")
}

// client returns nil if no servers are given.
func (k *kubeEtcd) client() (*clientv3.Client, error) {
	if len(k.servers) == 0 {
		return nil, nil
	}
	config := clientv3.Config{Endpoints: k.servers, Logger: zap.NewNop()}
	if !k.tls.Empty() || k.tls.TrustedCAFile != "" {
		var err error
		if config.TLS, err = k.tls.ClientConfig(); err != nil {
			return nil, fmt.Errorf("--kube-etcd-cafile, --kube-etcd-certfile or --kube-etcd-keyfile can't be used: %w", err)
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("--kube-etcd-servers can't be used: %w", err)
	}
	return client, nil
}
