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
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// everything attacks all bounds on memory at once: headers before their requests, watches, bodies, changes of large
// objects, and compressed lists.
func everything(ctx context.Context, a *attacker) {
	by := func(n int64, c call) call {
		header := map[string]string{"Authorization": a.bearer(n)}
		for name, value := range c.header {
			header[name] = value
		}
		c.header = header
		return c
	}
	body := big("new", bodyBytes-1<<10)
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { openWatches(ctx, a, nil) })
	end, _ := ctx.Deadline()
	time.Sleep(time.Until(end) / 2) // The rest would let few watches begin.
	for _, attack := range []func(context.Context, *attacker){
		func(ctx context.Context, a *attacker) {
			onConnections(ctx, func(ctx context.Context) {
				over(ctx, a, "h2", func(conn net.Conn) {
					if err := beginCookies(conn, a); err == nil {
						_, _ = io.Copy(io.Discard, conn)
					}
				})
			})
		},
		callsBy(true, perConnection, func(_ *attacker, n int64) call {
			return by(n, call{method: http.MethodPost, path: attackedPath + dryRun, header: map[string]string{"Content-Type": jsonType}, body: body})
		}),
		callsBy(true, perConnection, func(_ *attacker, n int64) call {
			name := fmt.Sprint("of-", n%int64(len(a.tokens)))
			labels := fmt.Appendf(nil, `"labels":{"n":"%d"},"ownerReferences"`, n)
			return by(n, call{
				method: http.MethodPatch, path: attackedPath + "/" + name + "?fieldManager=a&force=true",
				header: map[string]string{"Content-Type": applyType}, body: bytes.Replace(big(name, 600_000), []byte(`"ownerReferences"`), labels, 1),
			})
		}),
		callsBy(true, 1, func(_ *attacker, n int64) call { // More would leave no time for the others.
			return by(n, call{method: http.MethodGet, path: attackedPath + "?limit=1", header: map[string]string{"Accept-Encoding": "gzip"}})
		}),
	} {
		all.Go(func() { attack(ctx, a) })
	}
}
