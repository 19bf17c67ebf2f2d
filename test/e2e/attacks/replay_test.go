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
package attacks

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// heapGrowth is how much more of the heap may be in use after an attack: caches that fill
// up to their bounds. A watch cache keeps its last hundred events, however large they are.
const heapGrowth = 200 << 20

// medianWithin is how long half of the requests of others may take at most while strangers attack. It depends on the
// machine, and is looked at only in the long form.
const medianWithin = time.Second / 2

// shortAttack is the one of "make test".
const shortAttack = "bodies as large as they may be"

// The server survives each attack within its memory, gives back what it took, and serves
// others meanwhile.
func TestAttacks(t *testing.T) {
	duration, long := perAttack(t)
	admin := framework.AdminConfig(t, cp, server.Component)
	before, err := framework.Usage(admin)
	require.NoError(t, err)
	t.Logf("%d MiB of the heap are in use before the attacks", before.HeapBytes>>20)
	rows := []string{"| attack | sent to | memory | /readyz | another user | through kube-apiserver | kube-apiserver's own |", "| --- | --- | --- | --- | --- | --- | --- |"}
	all := attacks()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].builtIn && framework.WithCRDServer() || (all[name].defined || all[name].toWebhook) && !framework.WithCRDServer() {
			continue
		}
		attacked := &server
		if all[name].toWebhook {
			attacked = &webhook
		}
		doors := []*controlplane.Component{attacked.Component}
		if long && !all[name].frames && !all[name].direct && !all[name].toWebhook {
			doors = append(doors, cp.KubeAPIServer)
		}
		for _, door := range doors {
			t.Run(name+"/"+door.Name(), func(t *testing.T) {
				if name != shortAttack {
					framework.Long(t, shortAttack+" are the short one")
				}
				pid := attacked.PID()
				seen := replay(t, name, all[name], attacked, door, duration)
				rows = append(rows, fmt.Sprintf("| %s | %s | %s |", name, door.Name(), seen))
				for name, had := range seen.innocent() {
					assert.Zero(t, had.refused, "%s had %d requests", name, had.requests)
				}
				if long && all[name].user == "" && all[name].accounts == 0 && all[name].namespaces == 0 {
					assert.LessOrEqual(t, seen.ready.median(), medianWithin, "/readyz")
					assert.LessOrEqual(t, seen.direct.median(), medianWithin, "the bystander")
					assert.LessOrEqual(t, seen.through.median(), medianWithin, "the bystander through kube-apiserver")
				}
				require.Equal(t, pid, attacked.PID(), "It has been restarted.")
				controlplane.Eventually(t, func() error {
					now, err := framework.Usage(admin)
					if err == nil && now.HeapBytes > before.HeapBytes+heapGrowth {
						return fmt.Errorf("%d MiB of the heap are in use, %d before", now.HeapBytes>>20, before.HeapBytes>>20)
					}
					return err
				})
			})
		}
	}
	if long {
		fmt.Println(strings.Join(rows, "\n"))
	}
}

// result is what an attack did to the server and to others.
type result struct {
	memory
	ready, direct, through, available experience
}

// innocent is the experience of all users that did not attack.
func (r result) innocent() map[string]experience {
	return map[string]experience{"/readyz": r.ready, "the bystander": r.direct, "the bystander through kube-apiserver": r.through, "the APIService": r.available}
}

func (r result) String() string {
	cells := []string{fmt.Sprintf("%d MiB", r.peak>>20)}
	for _, had := range []experience{r.ready, r.direct, r.through, r.available} {
		cells = append(cells, fmt.Sprintf("%.1f s", had.slowest.Seconds()))
	}
	return strings.Join(cells, " | ")
}

func replay(t *testing.T, name string, a attack, attacked *target, door *controlplane.Component, duration time.Duration) result {
	t.Helper()
	config := framework.ConfigFor(t, cp, door, a.user)
	if a.user == "" {
		config = rest.AnonymousClientConfig(config)
	}
	order := order{Attack: name, Host: config.Host, Credentials: config.TLSClientConfig, Duration: duration}
	for _, of := range serviceAccounts(a.accounts, a.namespaces) {
		token, err := framework.Kube(cp).CoreV1().ServiceAccounts(of.Namespace).CreateToken(t.Context(), of.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		order.Tokens = append(order.Tokens, token.Status.Token)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var (
		peak                              <-chan memory
		ready, direct, through, available <-chan experience
	)
	attacker, err := order.send(t.Context(), func() {
		peak = watchMemory(ctx, attacked.PID())
		ready = use(ctx, lookReady(t, framework.ConfigFor(t, cp, server.Component, bystander)))
		// A request that has begun may end.
		direct = use(ctx, readAndWrite(t.Context(), t, framework.ConfigFor(t, cp, server.Component, bystander))...)
		through = use(ctx, readAndWrite(t.Context(), t, framework.ConfigFor(t, cp, cp.KubeAPIServer, bystander))...)
		available = use(ctx, lookAvailable(t.Context(), cp))
	})
	require.NoError(t, err)
	stop()
	seen := result{<-peak, <-ready, <-direct, <-through, <-available}
	t.Logf("attacker: %s", attacker)
	t.Logf("memory: %d MiB", seen.peak>>20)
	for who, had := range seen.innocent() {
		t.Logf("%s: %s", who, had)
		assert.Empty(t, had.failures[:min(3, len(had.failures))], who)
	}
	if a.allowed {
		for _, refused := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity} {
			require.Zero(t, attacker.answers[strconv.Itoa(refused)], "The attack does not get as far as it is meant to: %s", attacker)
		}
	}
	require.Less(t, seen.peak, attacked.limit, "More memory was taken than there is.")
	return seen
}
