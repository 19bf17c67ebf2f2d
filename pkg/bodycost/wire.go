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

package bodycost

import (
	"bytes"
	"encoding/binary"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxMessageDepth is deeper than the messages of any kind are nested.
const maxMessageDepth = 32

// checkProtobuf refuses a message with too many elements before it is decoded. An element
// of a list or map is a field of variable length that its message has had already. Only the
// schema could tell a message from text. So each is taken for a message as far as it reads
// like one, which text does not do for long.
func checkProtobuf(body []byte, limit int) error {
	message := bytes.TrimPrefix(body, []byte("k8s\x00"))
	if count := 0; repeatsExceed(message, &count, limit, 0) {
		return errTooMany(limit)
	}
	return nil
}

// repeatsExceed adds the repeated fields of a message, and of those in it, to count.
func repeatsExceed(message []byte, count *int, limit, depth int) bool {
	var seen fieldSet
	for number, value := range fields(message) {
		if seen.add(number) {
			*count++
		}
		if *count > limit || depth < maxMessageDepth && repeatsExceed(value, count, limit, depth+1) {
			return true
		}
	}
	return false
}

// fields returns the numbers and values of a message's fields of variable length, up to the
// first malformed field.
func fields(message []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(message) > 0 {
			number, wireType, n := protowire.ConsumeTag(message)
			if n < 0 {
				return
			}
			message = message[n:]
			length := protowire.ConsumeFieldValue(number, wireType, message)
			if length < 0 {
				return
			}
			if wireType == protowire.BytesType {
				value, _ := protowire.ConsumeBytes(message)
				if !yield(number, value) {
					return
				}
			}
			message = message[length:]
		}
	}
}

// fieldSet has the numbers of a message's fields. Fields of numbers that no kind has count
// as repeated.
type fieldSet uint64

func (s *fieldSet) add(number protowire.Number) (had bool) {
	if number >= 64 {
		return true
	}
	bit := fieldSet(1) << number
	had = *s&bit != 0
	*s |= bit
	return had
}

// checkCBOR refuses data with too many items, RFC 8949: an element of a map has two, the
// key and the value.
func checkCBOR(body []byte, limit int) error {
	for items := 0; len(body) > 0; items++ {
		if items > 2*limit {
			return errTooMany(limit)
		}
		n := cborItem(body)
		if n == 0 {
			return nil // The decoder says what is wrong.
		}
		body = body[n:]
	}
	return nil
}

// cborItem returns the length of the first data item without those that it contains, or 0
// if it is malformed.
func cborItem(data []byte) int {
	const byteString, textString = 2, 3
	major, info := data[0]>>5, data[0]&0x1f
	head, argument := 1, uint64(info)
	switch {
	case info == 31: // Of indefinite length, or its end.
		return 1
	case info >= 28:
		return 0
	case info >= 24:
		width := 1 << (info - 24)
		if head += width; head > len(data) {
			return 0
		}
		var padded [8]byte
		copy(padded[8-width:], data[1:head])
		argument = binary.BigEndian.Uint64(padded[:])
	}
	if major == byteString || major == textString {
		if argument > uint64(len(data)-head) { //nolint:gosec // G115: head is at most the length.
			return 0
		}
		return head + int(argument)
	}
	return head
}
