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

package controlplane

import (
	"crypto/tls"
	"errors"
	"net/http"
	"time"
)

// ServeHTTPS serves a handler for webhooks from this process until the control plane stops.
// kube-apiserver and the servers reach its address. Put the URL, with a path, and
// PKI.ServingCA.CertPEM() into a webhook's client configuration.
func (cp *ControlPlane) ServeHTTPS(handler http.Handler) (url string, err error) {
	issued, err := cp.PKI.ServingCA.Issue(Certificate{User: "webhook", Hosts: []string{"localhost", cp.config.Host.Address()}})
	if err != nil {
		return "", err
	}
	certificate, err := tls.X509KeyPair(issued.Cert, issued.Key)
	if err != nil {
		return "", err
	}
	listener, err := cp.config.Host.Listen("tcp", address(cp.config.Host, 0))
	if err != nil {
		return "", err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 30 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			select {
			case cp.died <- err:
			default:
			}
		}
	}()
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.servers = append(cp.servers, server)
	return "https://" + listener.Addr().String(), nil
}
