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
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// verb is what a client asked for.
type verb string

const (
	verbGet    verb = "get"
	verbCreate verb = "create"
	verbUpdate verb = "update"
	verbDelete verb = "delete"
)

// answer is what it was told.
type answer string

const (
	answerOK       answer = "ok"
	answerNotFound answer = "not found"
	answerExists   answer = "already exists"
	answerConflict answer = "conflict"
	// answerUnknown is of a write that was perhaps stored, now or later.
	answerUnknown answer = "unknown"
)

// none is the value of an object that does not exist. Each write has a value of its own.
const none = 0

// request is one for one object.
type request struct {
	verb verb
	name string
	// value is what it writes; before is the value that it updates.
	value, before int
}

type response struct {
	answer answer
	// value is what was read.
	value int
}

// history is what clients did. It may be added to from several goroutines.
type history struct {
	began      time.Time
	mu         sync.Mutex
	operations []porcupine.Operation
	unknown    int
}

func (h *history) now() int64 { return time.Since(h.began).Nanoseconds() }

// add records a request that began at a time and has just been answered.
func (h *history) add(client int, called int64, req request, res response) {
	h.mu.Lock()
	defer h.mu.Unlock()
	returned := h.now()
	if res.answer == answerUnknown {
		if req.verb == verbGet {
			return
		}
		h.unknown++
		returned = math.MaxInt64
	}
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: req, Call: called, Output: res, Return: returned})
}

// register is what an object is: it has a value, or does not exist.
var register = porcupine.NondeterministicModel{
	Partition: func(operations []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, operation := range operations {
			name := operation.Input.(request).name
			byName[name] = append(byName[name], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range byName {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{none} },
	Step: func(state, input, output any) []any { return step(state.(int), input.(request), output.(response)) },
	DescribeOperation: func(input, output any) string {
		req, res := input.(request), output.(response)
		return fmt.Sprintf("%s %d→%d: %s %d", req.verb, req.before, req.value, res.answer, res.value)
	},
}

// step returns in which states an object can be after a request that was answered so, or
// none if it can't have been answered so.
func step(state int, req request, res response) []any {
	var possible bool
	next := state
	switch req.verb {
	case verbGet:
		possible = res.value == state
	case verbCreate:
		possible, next = state == none, req.value
	case verbUpdate:
		possible, next = state == req.before, req.value
	case verbDelete:
		possible, next = state != none, none
	}
	switch res.answer {
	case answerOK:
		// The change is below.
	case answerUnknown:
		if possible {
			return []any{state, next}
		}
		return []any{state}
	case answerExists:
		possible, next = state != none, state
	case answerConflict:
		possible, next = state != req.before, state
	case answerNotFound:
		possible, next = state == none, state
	}
	if !possible {
		return nil
	}
	return []any{next}
}

// check returns the names of the objects that clients were told untruths about. For
// these, there is no order of all requests, each at a moment between its beginning and
// its end, that makes every answer right.
func (h *history) check(timeout time.Duration) (wrong, undecided []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	model := register.ToModel()
	for _, part := range register.Partition(h.operations) {
		name := part[0].Input.(request).name
		settled, unseen := settle(part)
		// Writes that nobody has seen make the search long, and matter seldom: if there is
		// an order without them, they may come after it.
		result := porcupine.CheckOperationsTimeout(model, settled, timeout)
		if result != porcupine.Ok && unseen != nil {
			result = porcupine.CheckOperationsTimeout(model, slices.Concat(settled, unseen), timeout)
		}
		switch result {
		case porcupine.Illegal:
			wrong = append(wrong, name+":\n"+describe(part))
		case porcupine.Unknown:
			undecided = append(undecided, name)
		case porcupine.Ok:
		}
	}
	slices.Sort(wrong)
	slices.Sort(undecided)
	return wrong, undecided
}

// settle returns the requests for an object without the unseen ones: writes that may have been
// stored, whose value nobody has read. One whose value somebody has read was stored before the
// end of that read.
func settle(operations []porcupine.Operation) (settled, unseen []porcupine.Operation) {
	seen := map[int]int64{}
	for _, operation := range operations {
		req, res := operation.Input.(request), operation.Output.(response)
		if req.verb != verbGet || res.answer != answerOK {
			continue
		}
		if before, ok := seen[res.value]; !ok || operation.Return < before {
			seen[res.value] = operation.Return
		}
	}
	for _, operation := range operations {
		if operation.Output.(response).answer != answerUnknown {
			settled = append(settled, operation)
			continue
		}
		end, ok := seen[operation.Input.(request).value]
		if !ok || operation.Input.(request).verb == verbDelete {
			unseen = append(unseen, operation)
			continue
		}
		// A read that ended before it began is for the search to refuse.
		operation.Output, operation.Return = response{answer: answerOK}, max(end, operation.Call)
		settled = append(settled, operation)
	}
	return settled, unseen
}

func describe(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var out strings.Builder
	for _, operation := range operations {
		returned := "…"
		if operation.Return != math.MaxInt64 {
			returned = time.Duration(operation.Return).String()
		}
		fmt.Fprintf(&out, "  client %d, %v–%s: %s\n", operation.ClientId, time.Duration(operation.Call), returned,
			register.DescribeOperation(operation.Input, operation.Output))
	}
	return out.String()
}
