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
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	systemuser "k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/cacher"
)

const (
	// decodeFactor is how many times the size of its text an object takes at most. It
	// takes that while a body within the bounds is decoded, converted and validated.
	decodeFactor = 6
	// listFactor is how many times its size in storage a list takes while it is
	// converted and encoded. listFactorIndented is that of YAML, and of JSON with "pretty",
	// which are made of the whole list in JSON.
	listFactor, listFactorIndented = 4, 16
	// writeFactor is how many times its size a stored object takes while it is patched, and
	// written as what it has become.
	writeFactor = 12
	// historyPart is the part of the budget that watch caches may take besides for former states of objects.
	historyPart = 2
	// HistoryTime is the shortest time that watch caches keep those.
	HistoryTime = cacher.DefaultEventFreshDuration
	// userPart is the part of what others leave of the budget that a single account may have. systemPart is the part
	// that is kept for accounts of the cluster itself.
	userPart, systemPart = 4, 8
	// leastPart is the part that an account may have in any case. As much as for accounts of the cluster is kept for that.
	leastPart = 512
	// idlePart is the part that an account's other requests may have while one counts as its only request: idle watches
	// keep some memory.
	idlePart = 32
	// budgetRetrySeconds is when a client may hope that others have finished.
	budgetRetrySeconds = 1
	// readChunk is the most of a body that is taken from the budget at once, and firstChunk what most bodies need.
	readChunk  = 32 << 10
	firstChunk = 1 << 10
)

var errBudget = errors.New("the memory for requests is used up")

// defaultRequestMemory is half of GOMEMLIMIT.
func defaultRequestMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 512 << 20
	}
	return limit / 2
}

// account is what a request is charged to.
type account struct {
	// user is a user, or the ServiceAccounts of a namespace: a namespace makes as many as it likes.
	user string
	// system accounts are those of the cluster, which no namespace can make.
	system bool
}

func accountOf(req *http.Request) account {
	user, ok := genericapirequest.UserFrom(req.Context())
	if !ok {
		return account{}
	}
	return accountOfUser(user.GetName())
}

func accountOfUser(user string) account {
	name := Account(user)
	return account{user: name, system: name == user && strings.HasPrefix(name, "system:") && name != systemuser.Anonymous}
}

// Account returns the name under which bounds by user count a user's requests. ServiceAccounts of a namespace
// share one, except in kube-system.
func Account(user string) string {
	namespace, _, err := serviceaccount.SplitUsername(user)
	if err == nil && namespace != metav1.NamespaceSystem {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return user
}

// budget bounds the memory that bodies and lists in work take together. It bounds that of each account, too, so that no
// number of them can take it all from the others.
type budget struct {
	limit int64

	mu    sync.Mutex
	used  int64
	users map[string]int64

	// history is what watch caches keep of what users have changed.
	history *Shares
}

func newBudget(limit int64) *budget {
	return &budget{limit: limit, users: map[string]int64{}, history: NewShares(limit / historyPart).WithLeast(limit / leastPart)}
}

// count is for callers that hold the lock.
func (b *budget) count(user string, bytes int64) {
	b.used += bytes
	if b.users[user] += bytes; b.users[user] == 0 {
		delete(b.users, user)
	}
}

func (b *budget) reserve(of account) *reservation { return &reservation{budget: b, account: of} }

// reservation is what one request has taken of a budget.
type reservation struct {
	*budget
	account
	// taken includes list, the part for a list, an object or the event of a watch. The budget protects both.
	taken, list int64
	// pages is the part of list for earlier pages: the answer to a deletecollection has them all.
	pages int64
	// released reservations take nothing any more: a watch may still be on its way to its end.
	released bool
	watch    watchReservation
}

// take tells whether there was enough. It does not wait for others: two that wait for
// each other, with a part of their bodies read, would do so forever.
func (s *reservation) take(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tryAdd(bytes)
}

// takeList takes memory for a list instead of that for the request's last one. A list larger
// than the part of a user is counted as that, since nobody could ever have it otherwise.
func (s *reservation) takeList(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(-s.list)
	s.list = 0
	return s.raise(bytes)
}

// raiseList takes more memory than for the request's last list, and keeps that if there is not
// enough.
func (s *reservation) raiseList(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raise(bytes)
}

func (s *reservation) raise(bytes int64) bool {
	more := min(bytes, s.limit/userPart) - s.list
	if s.released || more > 0 && !s.tryAdd(more) {
		return false
	}
	s.list += max(0, more)
	return true
}

// tryAdd lets an account have a quarter of what others leave, and with its only request half of that.
func (s *reservation) tryAdd(bytes int64) bool {
	has := s.users[s.user]
	left := s.limit - (s.used - has)
	may := s.most(left, has)
	if !s.system {
		part := s.limit / systemPart
		left -= part
		may = max(min(s.most(left, has), left-part), s.limit/leastPart)
	}
	if bytes > 0 && has+bytes > min(left, may) {
		return false
	}
	s.add(bytes)
	return true
}

// most is how much an account may have if others leave so much. One of the cluster has a part that they can't take.
func (s *reservation) most(left, has int64) int64 {
	only := has-s.taken <= s.limit/idlePart
	switch {
	case only && (s.system || s.used == has):
		return left // Nobody could ever have more than half otherwise.
	case only:
		return left / 2
	case s.system:
		return s.limit / userPart
	default:
		return left / userPart
	}
}

// release gives back what the request has taken. If its work may go on, its account has it for another while.
func (s *reservation) release(goesOn bool) {
	if goesOn {
		time.AfterFunc(HistoryTime, func() { s.release(false) })
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(-s.taken)
	s.list, s.released = 0, true
}

func (s *reservation) add(bytes int64) {
	s.taken += bytes
	s.count(s.user, bytes)
}

// read reads a body to its end, and takes from the budget what it costs to decode what has arrived.
// A client that announces a body has not sent one. A request that finds nothing left gives back what
// it has, so that others are read to their ends.
func (s *reservation) read(body io.Reader) ([]byte, error) {
	var text []byte
	for chunk := make([]byte, firstChunk); ; {
		n, err := body.Read(chunk)
		if !s.take(int64(n) * decodeFactor) {
			return nil, errBudget
		}
		text = append(text, chunk[:n]...)
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
		if n == len(chunk) && n < readChunk {
			chunk = make([]byte, 2*n)
		}
	}
}

// reservationKey is that of the reservation of a request, with the factors of its lists and objects.
type reservationKey struct{}

type listReservation struct {
	*reservation
	// factor is that of lists, object that of a single object.
	factor, object int64
	// indented is set if the client accepts nothing else, and sums if the answer has all lists that are read.
	indented, sums bool
}

// ReserveListMemory takes memory for the objects of a list that is about to be read, until TakeListMemory is called. The
// bytes are those of the objects in storage. If others have too much of it, the error tells the client to retry.
// Contexts of no request of a client take nothing.
func ReserveListMemory(ctx context.Context, bytes int64) error {
	s, ok := ctx.Value(reservationKey{}).(listReservation)
	// It may be much less, so that the part of an account beside its watches has to suffice.
	if !ok || s.takeList(s.pages+min(bytes*s.factor, s.limit/(2*userPart))) {
		return nil
	}
	return errTooMuchMemory("lists")
}

// TakeListMemory takes memory for the list that answers the context's request, until that has ended. The bytes are its
// size in storage, and read what it had in memory if it was read from etcd. Errors are those of ReserveListMemory, and
// one if the list takes more than the part of an account because it is indented. Anybody could end the server by a single
// one of these.
func TakeListMemory(ctx context.Context, bytes, read int64) error {
	s, ok := ctx.Value(reservationKey{}).(listReservation)
	if !ok {
		return nil
	}
	bytes, read = bytes*s.factor, read*s.factor
	if s.indented && s.pages+bytes > s.limit/userPart {
		return apierrors.NewBadRequest(`the list is too large to be indented: ask for JSON without "pretty", or for pages by "limit"`)
	}
	if !s.takeList(s.pages + max(bytes, min(read, s.limit/(2*userPart)))) {
		return errTooMuchMemory("lists")
	}
	if s.sums {
		s.pages += bytes
	}
	return nil
}

// WithMemoryOf returns a context that takes memory for the request of another one.
func WithMemoryOf(ctx, other context.Context) context.Context {
	return context.WithValue(ctx, reservationKey{}, other.Value(reservationKey{}))
}

// TakesMemory tells whether the context is that of a client's request.
func TakesMemory(ctx context.Context) bool {
	_, ok := ctx.Value(reservationKey{}).(listReservation)
	return ok
}

// TakeObjectMemory takes memory for a request that reads or changes an object of that LargeSize.
// Unlike TakeListMemory, it takes as much as the largest of its objects needs.
func TakeObjectMemory(ctx context.Context, size int64) error {
	s, ok := ctx.Value(reservationKey{}).(listReservation)
	if !ok || size == 0 || s.raiseList(size*s.object) {
		return nil
	}
	return errTooMuchMemory("large objects")
}

// TakeElementsMemory takes memory for the elements of a body. If each of them is invalid, the library compares the
// errors with each other, and copies the text of all for each. A body with as many as there may be takes all that its
// account may have. One with half as many takes a quarter of that.
// Upstream fault 85.
func TakeElementsMemory(ctx context.Context, elements, most int) error {
	s, ok := ctx.Value(reservationKey{}).(listReservation)
	if !ok {
		return nil
	}
	part := min(1, float64(elements)/float64(most))
	if s.take(int64(part * part * float64(s.limit/userPart))) {
		return nil
	}
	return errTooMuchMemory("bodies of many elements")
}

// TakeHistoryMemory takes memory for the state of an object in a number of watch caches. They keep it for HistoryTime,
// or until forget is called. Past changes refuse only changes of large objects.
func TakeHistoryMemory(ctx context.Context, object runtime.Object, caches int64) (forget func(), err error) {
	s, ok := ctx.Value(reservationKey{}).(listReservation)
	if !ok || s.system {
		return func() {}, nil
	}
	size := Size(object)
	if size < pastObject {
		return func() {}, nil
	}
	size *= caches
	if !s.history.Take(s.user, size) {
		return func() {}, apierrors.NewTooManyRequests("this user has changed as much of large objects of late as it leaves to others", budgetRetrySeconds)
	}
	forget = sync.OnceFunc(func() { s.history.Give(s.user, size) })
	time.AfterFunc(HistoryTime, forget)
	return forget, nil
}

func errTooMuchMemory(of string) error {
	return apierrors.NewTooManyRequests("other "+of+" take all the memory that there is for them, or for those of this user", budgetRetrySeconds)
}
