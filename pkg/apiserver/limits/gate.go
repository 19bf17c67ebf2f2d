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

package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// accountPart is the part of the memory that an account may have.
	accountPart = 4
	// smallRequest is what a request may take without a part of the memory, in bytes.
	smallRequest = 1 << 20
	// textFactor and yamlFactor are how many times its size a body in JSON or YAML takes while it is decoded, converted
	// and validated. Each of its elements takes elementBytes besides. Binary encodings need two bytes for an element.
	textFactor, yamlFactor, binaryFactor, elementBytes = 6, 16, 150, 1 << 10
	// listFactor is how many times its size in etcd a list or an object takes while it is converted and encoded.
	// indentedFactor is for YAML, and for JSON with "pretty", which are made of the whole in JSON. writeFactor is for an
	// object that is changed.
	listFactor, indentedFactor, writeFactor = 4, 16, 12
	// retrySeconds is when a client may hope that others have finished.
	retrySeconds = 1
	// statusClientClosedRequest is what nginx, and others after it, log for such requests.
	statusClientClosedRequest = 499
)

// accountOf returns the name under which bounds by user count a user's requests. ServiceAccounts of a namespace
// share one, except in kube-system.
func accountOf(user string) string {
	namespace, _, err := serviceaccount.SplitUsername(user)
	if err == nil && namespace != metav1.NamespaceSystem {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return user
}

// isOfCluster reports whether an account is one of the cluster itself, which no namespace can make.
func isOfCluster(account string) bool {
	return strings.HasPrefix(account, "system:") && !strings.HasPrefix(account, serviceaccount.ServiceAccountGroupPrefix) && account != user.Anonymous
}

// WithGate bounds the memory that large bodies, lists and objects take together, and how many watches and streams an
// account has. What it can't admit gets 429 with Retry-After. Work on a request goes on when its client has left. The
// gate belongs behind authorization, so that the server reads bodies only from clients that may write. It calls admit for
// each request, which must not be nil.
func WithGate(next http.Handler, serializer runtime.NegotiatedSerializer, longRunning genericapirequest.LongRunningRequestCheck, bounds Bounds, maxBody int64, admit func(*http.Request)) http.Handler {
	most := int64(bounds.RequestMemory / accountPart)
	memory := NewShares(int64(bounds.RequestMemory), most, 0)
	watches := NewShares(math.MaxInt64, int64(bounds.WatchesPerUser), 0)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		admit(req)
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		sender, known := genericapirequest.UserFrom(req.Context())
		if !ok || !known || !info.IsResourceRequest {
			next.ServeHTTP(w, req)
			return
		}
		refuse := func(err error) {
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
		}
		account := accountOf(sender.GetName())
		if longRunning(req, info) {
			if !isOfCluster(account) {
				if !watches.Take(account, 1) {
					refuse(apierrors.NewTooManyRequests(fmt.Sprintf("too many watches and streams for user %q (limit %d, see --max-watches-per-user)", account, bounds.WatchesPerUser), retrySeconds))
					return
				}
				defer watches.Give(account, 1)
			}
			next.ServeHTTP(w, req)
			return
		}
		// k8s.io/apiserver takes it for its own failure if a client leaves.
		// Upstream fault 82.
		if errors.Is(req.Context().Err(), context.Canceled) {
			w.WriteHeader(statusClientClosedRequest)
			return
		}
		ctx := context.WithoutCancel(req.Context())
		if deadline, ok := req.Context().Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
		part := &reservation{shares: memory, account: account, most: most, verb: info.Verb, indented: prefersIndented(req)}
		defer part.release()
		req = req.WithContext(context.WithValue(ctx, reservationKey{}, part))
		if hasBody(info.Verb) {
			if err := part.readBody(req, bounds, maxBody); err != nil {
				refuse(err)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// hasBody reports whether the handlers of a verb read a body. Handlers of other verbs ignore it.
func hasBody(verb string) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, verb)
}

type reservationKey struct{}

// reservation is the part of the memory that a request has.
type reservation struct {
	shares   *Shares
	account  string
	most     int64
	verb     string
	indented bool

	mu    sync.Mutex
	taken int64
	// ended is set when the handler returns. k8s.io/apiserver may still be at work on a request whose time is over.
	ended bool
}

// raise takes as much memory as the request needs by now, and reports whether there was enough. A request that needs
// more than an account may have takes that, since nobody could ever make it otherwise.
func (r *reservation) raise(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	more := min(bytes, r.most) - r.taken
	if r.ended || bytes <= smallRequest || more <= 0 {
		return true
	}
	if !r.shares.Take(r.account, more) {
		return false
	}
	r.taken += more
	return true
}

func (r *reservation) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shares.Give(r.account, r.taken)
	r.taken, r.ended = 0, true
}

func errTooMuchMemory(of string) error {
	return apierrors.NewTooManyRequests("too many large "+of+" at once; retry", retrySeconds)
}

// readBody reads and checks the body, as far as it is not too large for the handler anyway, and puts it back.
func (r *reservation) readBody(req *http.Request, bounds Bounds, maxBody int64) error {
	size := req.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody
	}
	mediaType := mediaTypeOf(req)
	if !r.raise(size * factorOf(mediaType)) {
		return errTooMuchMemory("bodies")
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body can't be read: %v", err))
	}
	req.Body = readCloser{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
	if int64(len(body)) > maxBody {
		return nil // The handler says so.
	}
	memory, err := bounds.CheckBody(r.verb, mediaType, body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if !r.raise(memory) {
		return errTooMuchMemory("bodies")
	}
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// mediaTypeOf ignores the parameters, as the handler of patches does, even if they are malformed. A parser that
// refuses them would take YAML for something else.
func mediaTypeOf(req *http.Request) string {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

// ReserveList takes memory for a list that answers the context's request. The bytes are the size of its objects in etcd.
// The error tells the client to retry, or to ask for another form. Contexts of no request of a client take nothing.
func ReserveList(ctx context.Context, bytes int64) error {
	r, ok := ctx.Value(reservationKey{}).(*reservation)
	if !ok {
		return nil
	}
	factor := int64(listFactor)
	if r.indented {
		factor = indentedFactor
	}
	bytes *= factor
	if r.indented && bytes > r.most {
		return apierrors.NewBadRequest(`the list is too large to be indented: ask for JSON with "pretty=false", or for pages by "limit"`)
	}
	if r.verb == "deletecollection" { // Its answer has all pages.
		bytes += r.has()
	}
	if !r.raise(bytes) {
		return errTooMuchMemory("lists")
	}
	return nil
}

// ReserveObject takes memory for an object that the context's request reads or changes. The bytes are about those that
// it has in etcd.
func ReserveObject(ctx context.Context, bytes int64) error {
	r, ok := ctx.Value(reservationKey{}).(*reservation)
	if !ok {
		return nil
	}
	factor := int64(writeFactor)
	switch {
	case r.indented:
		factor = indentedFactor
	case r.verb == "get":
		factor = listFactor
	}
	if !r.raise(bytes * factor) {
		return errTooMuchMemory("objects")
	}
	return nil
}

func (r *reservation) has() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// prefersIndented reports whether a client may get an answer in YAML, or indented. It says so rather too often.
func prefersIndented(req *http.Request) bool {
	accept := strings.ToLower(req.Header.Get("Accept"))
	if strings.Contains(accept, "yaml") || strings.Contains(accept, "pretty") {
		return true
	}
	if pretty, err := strconv.ParseBool(req.URL.Query().Get("pretty")); err == nil {
		return pretty
	}
	return slices.ContainsFunc([]string{"curl", "Wget", "Mozilla/5.0"}, func(program string) bool { return strings.HasPrefix(req.UserAgent(), program) })
}
