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
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// A campaign that sees nothing proves nothing: these are histories that can't be.
func TestHistories(t *testing.T) {
	get := func(value int) (request, response) { return request{verb: verbGet}, response{answerOK, value} }
	type done struct {
		req        request
		res        response
		begin, end int64
	}
	read := func(value int, begin, end int64) done {
		req, res := get(value)
		return done{req, res, begin, end}
	}
	write := func(value, before int, answer answer, begin, end int64) done {
		verb := verbUpdate
		if before == none {
			verb = verbCreate
		}
		return done{request{verb: verb, value: value, before: before}, response{answer: answer}, begin, end}
	}
	remove := func(answer answer, begin, end int64) done {
		return done{request{verb: verbDelete}, response{answer: answer}, begin, end}
	}
	absent := func(begin, end int64) done {
		return done{request{verb: verbGet}, response{answer: answerNotFound}, begin, end}
	}
	const never = 1 << 60
	for name, test := range map[string]struct {
		done []done
		want bool
	}{
		"one after the other":          {[]done{absent(0, 1), write(1, none, answerOK, 2, 3), read(1, 4, 5), write(2, 1, answerOK, 6, 7), read(2, 8, 9), remove(answerOK, 10, 11), absent(12, 13)}, true},
		"a read beside a write":        {[]done{write(1, none, answerOK, 0, 9), read(1, 1, 2)}, true},
		"a lost write":                 {[]done{write(1, none, answerOK, 0, 1), absent(2, 3)}, false},
		"a stale read":                 {[]done{write(1, none, answerOK, 0, 1), write(2, 1, answerOK, 2, 3), read(1, 4, 5)}, false},
		"two updates of one value":     {[]done{write(1, none, answerOK, 0, 1), write(2, 1, answerOK, 2, 5), write(3, 1, answerOK, 3, 6)}, false},
		"an unknown write, stored":     {[]done{write(1, none, answerUnknown, 0, never), absent(2, 3), read(1, 4, 5)}, true},
		"an unknown write, not":        {[]done{write(1, none, answerUnknown, 0, never), absent(2, 3)}, true},
		"an unknown write, seen early": {[]done{read(1, 0, 1), write(1, none, answerUnknown, 2, never)}, false},
		"unknown writes, most unseen": {[]done{
			write(1, none, answerUnknown, 0, never), write(2, none, answerUnknown, 0, never), remove(answerUnknown, 0, never), write(3, none, answerUnknown, 0, never),
			read(2, 4, 5), absent(6, 7), read(3, 8, 9),
		}, true},
		"an unknown write, undone":    {[]done{write(1, none, answerUnknown, 0, never), read(1, 2, 3), absent(4, 5)}, false},
		"an unknown deletion, late":   {[]done{write(1, none, answerOK, 0, 1), remove(answerUnknown, 2, never), read(1, 3, 4), absent(5, 6)}, true},
		"a conflict with another":     {[]done{write(1, none, answerOK, 0, 1), write(2, 1, answerOK, 2, 3), write(3, 1, answerConflict, 4, 5)}, true},
		"a conflict with nothing":     {[]done{write(1, none, answerOK, 0, 1), write(2, 1, answerConflict, 2, 3)}, false},
		"what exists can't exist":     {[]done{write(1, none, answerExists, 0, 1)}, false},
		"a deletion of nothing":       {[]done{remove(answerNotFound, 0, 1)}, true},
		"a deletion finds nothing":    {[]done{write(1, none, answerOK, 0, 1), remove(answerNotFound, 2, 3)}, false},
		"back from the dead":          {[]done{write(1, none, answerOK, 0, 1), remove(answerOK, 2, 3), read(1, 4, 5)}, false},
		"a value never written":       {[]done{write(1, none, answerOK, 0, 1), read(7, 2, 3)}, false},
		"created twice in succession": {[]done{write(1, none, answerOK, 0, 1), write(2, none, answerOK, 2, 3)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{began: time.Now()}
			for _, done := range test.done {
				h.operations = append(h.operations, porcupine.Operation{Input: done.req, Output: done.res, Call: done.begin, Return: done.end})
			}
			wrong, undecided := h.check(time.Minute)
			require.Empty(t, undecided)
			require.Equal(t, test.want, len(wrong) == 0, wrong)
		})
	}
}
