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

package migration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A second kube-apiserver learns of everything five seconds late: of the freeze, of its end, and of the
// server of the group. No write is lost that it has acknowledged.
func TestLaggingKubeAPIServer(t *testing.T) {
	framework.Long(t, "there is a second kube-apiserver")
	t.Parallel()
	c := newDefinedCluster(t)
	etcd, url := newSlowEtcd(t, c.ControlPlane)
	other, err := c.NewKubeAPIServer("kube-apiserver-2", url, controlplane.ComponentConfig{})
	require.NoError(t, err)
	require.NoError(t, other.Start(t.Context()))
	etcd.delay.Store(int64(5 * time.Second))

	require.NoError(t, c.createPizza(t, c.restaurant(), "late", nil))
	config := rest.CopyConfig(c.config())
	config.Host = other.URL()
	late := dynamic.NewForConfigOrDie(config).Resource(gvr("pizzas")).Namespace(metav1.NamespaceDefault)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	acknowledged, sent := 0, 0
	wg.Go(func() {
		for every(ctx, 20*time.Millisecond) {
			sent++
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, counted, sent)
			if _, err := late.Patch(ctx, "late", types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
				acknowledged = sent
			} else if ctx.Err() == nil && !apierrors.IsTooManyRequests(err) {
				t.Log(err)
			}
		}
	})
	code, _, stderr := c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	t.Log(stderr)
	time.Sleep(10 * time.Second)
	stop()
	wg.Wait()
	pizza, err := c.pizzas().Get(t.Context(), "late", metav1.GetOptions{})
	require.NoError(t, err)
	got, err := strconv.Atoi(pizza.GetAnnotations()[counted])
	require.NoError(t, err)
	require.GreaterOrEqual(t, got, acknowledged, "A write that was acknowledged is lost.")
	t.Logf("%d writes were sent; the server has %d of them.", sent, got)
}

// etcdProxy passes on what etcd says.
type etcdProxy struct {
	// delay is how late it says what watches tell.
	delay atomic.Int64
	// link, if there is one, is where requests get into trouble.
	link *link
	etcd *grpc.ClientConn
}

// newSlowEtcd passes on what kube-apiserver's etcd says, and returns the URL.
func newSlowEtcd(t *testing.T, cp *controlplane.ControlPlane) (proxy *etcdProxy, url string) {
	t.Helper()
	client, err := cp.EtcdTLS()
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, address, _ := strings.Cut(cp.Etcd.URL(), "://")
	proxy = passOn(t, listener, address, credentials.NewTLS(client), grpc.Creds(credentials.NewTLS(serverTLS(t, cp))))
	return proxy, "https://" + listener.Addr().String()
}

// serverTLS returns the TLS configuration of a server in a test.
func serverTLS(t *testing.T, cp *controlplane.ControlPlane) *tls.Config {
	t.Helper()
	issued, err := cp.PKI.ServingCA.Issue(controlplane.Certificate{User: "proxy", Hosts: []string{"localhost", "127.0.0.1"}})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(issued.Cert, issued.Key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
}

// passOn passes on what the etcd at an address says.
func passOn(t *testing.T, listener net.Listener, address string, client credentials.TransportCredentials, options ...grpc.ServerOption) *etcdProxy {
	t.Helper()
	etcd, err := grpc.NewClient(address, grpc.WithTransportCredentials(client), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	require.NoError(t, err)
	p := &etcdProxy{etcd: etcd}
	server := grpc.NewServer(append(options, grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(p.handle), grpc.MaxRecvMsgSize(64<<20))...)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		_ = etcd.Close()
	})
	return p
}

func (p *etcdProxy) handle(_ any, from grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(from)
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	to, err := p.etcd.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	if p.link != nil {
		if strings.HasPrefix(method, kvService) {
			return p.link.passOn(method, from, to)
		}
		defer context.AfterFunc(p.link.broken(), cancel)()
	}
	go func() {
		for {
			message := &message{}
			if err := from.RecvMsg(message); err != nil {
				_ = to.CloseSend()
				return
			}
			if to.SendMsg(message) != nil {
				return
			}
		}
	}()
	type delayed struct {
		*message
		at time.Time
	}
	queue := make(chan delayed, 100_000)
	ended := make(chan error, 1)
	go func() {
		defer close(queue)
		for {
			message := &message{}
			if err := to.RecvMsg(message); err != nil {
				ended <- err
				return
			}
			at := time.Now()
			if method == "/etcdserverpb.Watch/Watch" {
				at = at.Add(time.Duration(p.delay.Load()))
			}
			queue <- delayed{message, at}
		}
	}()
	for next := range queue {
		select {
		case <-time.After(time.Until(next.at)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := from.SendMsg(next.message); err != nil {
			return err
		}
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		return err
	}
	from.SetTrailer(to.Trailer())
	return nil
}

// message is one of any type.
type message struct{ content []byte }

// raw leaves messages as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(of any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(of.(*message).content)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, into any) error {
	into.(*message).content = data.Materialize()
	return nil
}
