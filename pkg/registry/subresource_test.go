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

package registry_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authenticationuser "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
	types "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
)

func (m machines) run(name string, run *types.Run, admit rest.ValidateObjectFunc, dryRun ...string) (*types.Run, error) {
	run.Namespace = "default" // As the endpoint handlers set it.
	obj, err := m.ByVersion["v1"]["machines/run"].(rest.NamedCreater).Create(m.context("machines/run"), name, run, admit, &metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		return nil, err
	}
	return obj.(*types.Run), nil
}

func count(n int32) *types.Run { return &types.Run{Spec: types.RunSpec{Count: n}} }

func TestAction(t *testing.T) {
	m := newMachines(t)
	created := m.mustCreate(drill())
	refused := errors.New("refused by admission")
	for _, step := range []struct {
		name    string
		run     *types.Run
		of      string
		refuse  error
		dryRun  []string
		started int32
		want    func(error) bool
		running int32
	}{
		{name: "a dry run", run: count(2), dryRun: []string{metav1.DryRunAll}, started: 2},
		{name: "refused", run: count(2), refuse: refused, want: func(err error) bool { return errors.Is(err, refused) }},
		{name: "invalid", run: count(0), want: apierrors.IsInvalid},
		{name: "another name", run: &types.Run{ObjectMeta: metav1.ObjectMeta{Name: "saw"}, Spec: types.RunSpec{Count: 1}}, want: apierrors.IsBadRequest},
		{name: "no machine", run: count(1), of: "saw", want: apierrors.IsNotFound},
		{name: "some", run: count(2), started: 2, running: 2},
		{name: "more than are missing", run: count(5), started: 1, running: 3},
		{name: "none is missing", run: count(1), want: apierrors.IsConflict, running: 3},
	} {
		t.Run(step.name, func(t *testing.T) {
			name := "drill"
			if step.of != "" {
				name = step.of
			}
			run, err := m.run(name, step.run, func(context.Context, runtime.Object) error { return step.refuse }, step.dryRun...)
			switch {
			case step.want != nil && !step.want(err), step.want == nil && err != nil:
				t.Fatalf("got the error %v", err)
			case err == nil && run.Status.Started != step.started:
				t.Errorf("got %d started, want %d", run.Status.Started, step.started)
			}
			machine, err := m.get("drill")
			if err != nil {
				t.Fatal(err)
			}
			if machine.Status.Replicas != step.running || machine.Generation != created.Generation {
				t.Errorf("got %d running and generation %d, want %d and %d", machine.Status.Replicas, machine.Generation, step.running, created.Generation)
			}
		})
	}
}

// TestActionsTakeTurns checks that none of many concurrent Actions is lost.
func TestActionsTakeTurns(t *testing.T) {
	m := newMachines(t)
	machine := drill()
	machine.Spec.Replicas = 100
	m.mustCreate(machine)
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			if _, err := m.run("drill", count(1), rest.ValidateAllObjectFunc); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if machine, err := m.get("drill"); err != nil || machine.Status.Replicas != 40 {
		t.Errorf("got %d running and the error %v, want 40", machine.Status.Replicas, err)
	}
}

// progress starts a server for the Stream of a machine, and returns its lines.
func (m machines) progress(ctx context.Context, options *types.ProgressOptions) (*bufio.Scanner, error) {
	m.Helper()
	handler, err := m.ByVersion["v1"]["machines/progress"].(rest.Connecter).Connect(ctx, "drill", options, nil)
	if err != nil {
		return nil, err
	}
	server := httptest.NewServer(handler)
	m.Cleanup(server.Close)
	response, err := server.Client().Get(server.URL)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = response.Body.Close() })
	return bufio.NewScanner(response.Body), nil
}

func remaining(lines *bufio.Scanner) (all []string) {
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	return all
}

func TestStream(t *testing.T) {
	follow := &types.ProgressOptions{Follow: true, TimeoutSeconds: 50}
	for name, test := range map[string]struct {
		options *types.ProgressOptions
		then    func(machines, context.CancelFunc, stopper) error
		want    []string
	}{
		"once": {&types.ProgressOptions{TimeoutSeconds: 50}, nil, []string{"0 of 3 run"}},
		"to the end": {follow, func(m machines, _ context.CancelFunc, _ stopper) error {
			_, err := m.run("drill", count(3), rest.ValidateAllObjectFunc)
			return err
		}, []string{"0 of 3 run", "3 of 3 run"}},
		"deleted": {follow, func(m machines, _ context.CancelFunc, _ stopper) error {
			_, _, err := m.ByVersion["v1"]["machines"].(rest.GracefulDeleter).Delete(m.context("machines"), "drill", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
			return err
		}, []string{"0 of 3 run", "deleted"}},
		"timed out":     {&types.ProgressOptions{Follow: true, TimeoutSeconds: 1}, nil, []string{"0 of 3 run", "timed out after 1s"}},
		"shutting down": {follow, func(_ machines, _ context.CancelFunc, s stopper) error { close(s); return nil }, []string{"0 of 3 run", "the server is shutting down"}},
		"cancelled":     {follow, func(_ machines, cancel context.CancelFunc, _ stopper) error { cancel(); return nil }, []string{"0 of 3 run"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachines(t)
			m.mustCreate(drill())
			stop := make(stopper)
			ctx, cancel := context.WithCancel(genericapirequest.WithServerShutdownSignal(m.context("machines/progress"), stop))
			defer cancel()
			lines, err := m.progress(ctx, test.options)
			if err != nil {
				t.Fatal(err)
			}
			lines.Scan()
			got := []string{lines.Text()}
			if test.then != nil {
				if err := test.then(m, cancel, stop); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, append(got, remaining(lines)...)); diff != "" {
				t.Errorf("unexpected lines (-want +got):\n%s", diff)
			}
		})
	}
}

// stopper is closed when a server is to shut down.
type stopper chan struct{}

func (s stopper) ShuttingDown() <-chan struct{} { return s }

func TestStreamOfNothing(t *testing.T) {
	m := newMachines(t)
	for name, test := range map[string]struct {
		options *types.ProgressOptions
		want    func(error) bool
	}{
		"invalid options":      {&types.ProgressOptions{TimeoutSeconds: 0}, apierrors.IsInvalid},
		"no machine":           {&types.ProgressOptions{TimeoutSeconds: 1}, apierrors.IsNotFound},
		"no machine to follow": {&types.ProgressOptions{TimeoutSeconds: 1, Follow: true}, apierrors.IsNotFound},
	} {
		if _, err := m.progress(m.context("machines/progress"), test.options); !test.want(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestReview(t *testing.T) {
	fails, refused := errors.New("out of order"), errors.New("refused by admission")
	estimate := workshop.Estimate()
	estimate.Answer = nil
	group := workshop.Group()
	group.Kinds = []registry.Declaration{estimate}
	// The answer is the runtime's, as if it read informers.
	group.Runtime = func(registry.Clients) (registry.Runtime, error) {
		return registry.Runtime{Answers: map[string]registry.Answer{
			"estimates": registry.AnswerFunc[*types.Estimate](func(_ context.Context, e *types.Estimate) error {
				switch e.Spec.Replicas {
				case 99:
					return fails
				case 98:
					return apierrors.NewTooManyRequests("later", 1)
				}
				e.Status.Minutes = 2 * e.Spec.Replicas
				return nil
			}),
		}}, nil
	}
	storage := registrytesting.NewStorage(t, group)
	ctx := storage.Context(t.Context(), "v1", "estimates", "")
	for name, test := range map[string]struct {
		replicas int32
		refuse   error
		want     func(error) bool
	}{
		"answered":           {replicas: 4},
		"invalid":            {replicas: 0, want: apierrors.IsInvalid},
		"refused":            {replicas: 4, refuse: refused, want: func(err error) bool { return errors.Is(err, refused) }},
		"an error":           {replicas: 99, want: apierrors.IsInternalError},
		"an error of status": {replicas: 98, want: apierrors.IsTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := storage.ByVersion["v1"]["estimates"].(rest.Creater).Create(ctx, &types.Estimate{Spec: types.EstimateSpec{Replicas: test.replicas}},
				func(context.Context, runtime.Object) error { return test.refuse }, &metav1.CreateOptions{})
			if test.want != nil {
				if !test.want(err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := obj.(*types.Estimate).Status.Minutes; got != 8 {
				t.Errorf("got %d minutes, want 8", got)
			}
		})
	}
	if _, served := storage.ByVersion["v1alpha1"]["estimates"]; served {
		t.Error("v1alpha1 serves estimates, which it does not have")
	}
	if err := workshop.Estimate().Answer.Answer(ctx, &types.Site{}); err == nil {
		t.Error("a Site has been answered as an Estimate")
	}
}

// counters is the storage of objects that are computed, as metrics-server does.
type counters struct{ rest.TableConvertor }

func (counters) New() runtime.Object     { return &types.Site{} }
func (counters) NewList() runtime.Object { return &types.SiteList{} }
func (counters) Destroy()                {}
func (counters) NamespaceScoped() bool   { return false }
func (counters) GetSingularName() string { return "site" }

func (counters) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return &types.Site{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: types.SiteSpec{Capacity: int32(len(name))}}, nil
}

func (c counters) List(ctx context.Context, _ *metainternalversion.ListOptions) (runtime.Object, error) {
	one, err := c.Get(ctx, "yard", nil)
	return &types.SiteList{Items: []types.Site{*one.(*types.Site)}}, err
}

var _ interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.Getter
	rest.Lister
} = counters{}

func serveCounters(registry.Installation) (map[string]rest.Storage, error) {
	return map[string]rest.Storage{"sites": counters{rest.NewDefaultTableConvertor(types.Resource("sites"))}}, nil
}

// TestCustom serves a resource that is not in etcd.
func TestCustom(t *testing.T) {
	custom := registry.Custom{New: func() runtime.Object { return &types.Site{} }, Resource: "sites", FieldLabels: []string{"metadata.name"}}
	served := custom
	served.Serve = serveCounters
	for name, group := range map[string]registry.Group{
		"of its own": {Kinds: []registry.Declaration{served}},
		"of the runtime": {Kinds: []registry.Declaration{custom}, Runtime: func(registry.Clients) (registry.Runtime, error) {
			return registry.Runtime{Serve: map[string]registry.ServeFunc{"sites": serveCounters}}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			group.Name, group.Install = types.GroupName, workshop.Install
			storage := registrytesting.NewStorage(t, group)
			for _, version := range []string{"v1", "v1alpha1"} {
				obj, err := storage.ByVersion[version]["sites"].(rest.Getter).Get(t.Context(), "hall", nil)
				if err != nil || obj.(*types.Site).Spec.Capacity != 4 {
					t.Errorf("got %v and the error %v", obj, err)
				}
			}
			if prefixes := group.StoragePrefixes(); len(prefixes) != 0 {
				t.Errorf("got the prefixes %v of what is not stored", prefixes)
			}
		})
	}
}

// connected is the storage of machines with a Connect, which the runtime handles, as if it
// needed clients.
func connected(t *testing.T, connect registry.Connect[*types.Machine, *types.ProgressOptions]) machines {
	t.Helper()
	handler := connect.Handler
	connect.Handler = nil
	kind, group := workshop.Machine(), workshop.Group()
	kind.Subresources = map[string]registry.Subresource[*types.Machine]{"shell": connect}
	group.Kinds = []registry.Declaration{kind}
	group.Runtime = func(registry.Clients) (registry.Runtime, error) {
		return registry.Runtime{Handlers: map[string]registry.Handler{"machines/shell": handler}, Authorizer: onlyWriters}, nil
	}
	m := machines{t, registrytesting.NewStorage(t, group)}
	m.mustCreate(drill())
	if _, err := handler.Handle(t.Context(), &types.Site{}, nil, nil); err == nil {
		t.Error("a Site has been handled as a Machine")
	}
	return m
}

// onlyWriters lets the user writer do everything.
var onlyWriters = authorizer.AuthorizerFunc(func(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	if asked.GetUser().GetName() == "writer" && asked.GetVerb() == "create" && asked.GetResource() == "machines" && asked.GetSubresource() == "shell" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no RBAC policy matched", nil
})

// errorResponder answers with an error.
type errorResponder struct {
	rest.Responder
	w http.ResponseWriter
}

func (r errorResponder) Error(err error) { http.Error(r.w, err.Error(), http.StatusForbidden) }

// connect serves the subresource to a user by the verb of GET.
func (m machines) connect(user, name string, options *types.ProgressOptions) (*httptest.Server, error) {
	ctx := genericapirequest.WithUser(m.context("machines/shell"), &authenticationuser.DefaultInfo{Name: user})
	info, _ := genericapirequest.RequestInfoFrom(ctx)
	info.Verb = "get"
	connecter := m.ByVersion["v1"]["machines/shell"].(rest.Connecter)
	if _, err := connecter.Connect(ctx, name, options, nil); err != nil {
		return nil, err
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler, err := connecter.Connect(ctx, name, options, errorResponder{w: w})
		if err != nil {
			m.Error(err)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	m.Cleanup(server.Close)
	return server, nil
}

// TestConnectUpgrades takes over the connection, and echoes what it reads from it.
func TestConnectUpgrades(t *testing.T) {
	m := connected(t, registry.Connect[*types.Machine, *types.ProgressOptions]{
		NewOptions: workshop.Progress().NewOptions,
		Methods:    []string{http.MethodGet, http.MethodPost},
		Handler: func(_ context.Context, machine *types.Machine, _ *types.ProgressOptions, _ rest.Responder) (http.Handler, error) {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				connection, buffered, err := http.NewResponseController(w).Hijack()
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				defer func() { _ = connection.Close() }()
				_, _ = fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n%s:", machine.Name)
				_, _ = io.CopyN(connection, buffered, 5)
			}), nil
		},
	})
	if diff := cmp.Diff([]string{"GET", "POST"}, m.ByVersion["v1"]["machines/shell"].(rest.Connecter).ConnectMethods()); diff != "" {
		t.Errorf("unexpected methods (-want +got):\n%s", diff)
	}
	for user, want := range map[string]string{
		"writer": "\r\n\r\ndrill:hello",
		"reader": `machines.workshop.example.com "drill" is forbidden: to upgrade the connection, one has to be allowed to create machines/shell: no RBAC policy matched` + "\n",
	} {
		t.Run(user, func(t *testing.T) {
			server, err := m.connect(user, "drill", &types.ProgressOptions{TimeoutSeconds: 1})
			if err != nil {
				t.Fatal(err)
			}
			connection, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = connection.Close() }()
			if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: machine\r\nConnection: Upgrade, close\r\nUpgrade: echo\r\n\r\nhello"); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(connection)
			if err != nil || !bytes.HasSuffix(answer, []byte(want)) {
				t.Errorf("got %q and the error %v, want %q at its end", answer, err, want)
			}
		})
	}
}

// TestConnectStreamsBytes answers with bytes that are no text.
func TestConnectStreamsBytes(t *testing.T) {
	m := connected(t, registry.Connect[*types.Machine, *types.ProgressOptions]{
		NewOptions: workshop.Progress().NewOptions,
		Methods:    []string{http.MethodGet},
		Handler: func(_ context.Context, machine *types.Machine, options *types.ProgressOptions, _ rest.Responder) (http.Handler, error) {
			if options.Follow {
				return nil, apierrors.NewConflict(types.Resource("machines"), machine.Name, errors.New("it can't be followed"))
			}
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/octet-stream")
				_, _ = w.Write([]byte{0, 1, 254, 255})
			}), nil
		},
	})
	for name, test := range map[string]struct {
		machine string
		options types.ProgressOptions
		want    func(error) bool
	}{
		"invalid options": {"drill", types.ProgressOptions{}, apierrors.IsInvalid},
		"no machine":      {"saw", types.ProgressOptions{TimeoutSeconds: 1}, apierrors.IsNotFound},
		"its own error":   {"drill", types.ProgressOptions{TimeoutSeconds: 1, Follow: true}, apierrors.IsConflict},
	} {
		if _, err := m.connect("reader", test.machine, &test.options); !test.want(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	server, err := m.connect("reader", "drill", &types.ProgressOptions{TimeoutSeconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, []byte{0, 1, 254, 255}) {
		t.Errorf("got % x and the error %v", got, err)
	}
}
