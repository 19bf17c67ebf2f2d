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

package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"
)

// The format of bbolt's files, version 2, in the byte order of the machine. Bbolt itself
// maps a file into memory and trusts it. In a damaged file it reads beyond the end, or
// panics in a goroutine of its own. Either ends the process.
// Upstream fault 72.
const (
	pageHeaderSize    = 16
	elementSize       = 16
	bucketHeaderSize  = 16
	metaSize          = 64
	metaMagic         = 0xED0CDAED
	metaVersion       = 2
	branchPage        = 0x01
	leafPage          = 0x02
	freelistPage      = 0x10
	bucketLeaf        = 0x01
	noFreelist        = math.MaxUint64
	maxDepth          = 64
	maxDamages        = 8
	minPageSize       = 512
	maxPageSize       = 64 << 10
	firstPage         = 2
	longFreelistCount = math.MaxUint16
)

// tree is a file of bbolt.
type tree struct {
	file     io.ReaderAt
	pageSize int64
	// root and free are where the buckets and the free pages are listed.
	root, free uint64
	// end is the page after the last one.
	end     uint64
	used    []bool
	buckets []string
	damages []string
	// stopped is set when there is too much damage to go on.
	stopped bool
}

// visitLeaf is told of each key in each bucket.
type visitLeaf func(bucket string, key, value []byte) error

// openTree reads the two pages with metadata. The later one that is complete is valid.
func openTree(file io.ReaderAt, size int64) (*tree, error) {
	var best []byte
	for _, offset := range metaOffsets(file) {
		meta := make([]byte, metaSize)
		if _, err := file.ReadAt(meta, offset+pageHeaderSize); err != nil || !validMeta(meta) {
			continue
		}
		if best == nil || u64(meta, 48) > u64(best, 48) {
			best = meta
		}
	}
	if best == nil {
		return nil, errors.New("pages 0 and 1 are damaged: neither has valid metadata")
	}
	t := &tree{file: file, pageSize: int64(u32(best, 8)), root: u64(best, 16), free: u64(best, 32), end: u64(best, 40)}
	if t.pageSize < minPageSize || t.pageSize > maxPageSize {
		return nil, fmt.Errorf("page 0 is damaged: pages have %d bytes", t.pageSize)
	}
	if pages := uint64(size / t.pageSize); t.end > pages { //nolint:gosec // G115: a size is not negative.
		return nil, fmt.Errorf("it is truncated: pages %d to %d are missing", pages, t.end-1)
	}
	t.used = make([]bool, t.end)
	return t, nil
}

// metaOffsets returns where metadata can begin. The first page says where the second
// begins. If the first is damaged, that is at a power of two.
func metaOffsets(file io.ReaderAt) []int64 {
	meta := make([]byte, metaSize)
	if _, err := file.ReadAt(meta, pageHeaderSize); err == nil && validMeta(meta) {
		return []int64{0, int64(u32(meta, 8))}
	}
	var offsets []int64
	for size := int64(minPageSize); size <= maxPageSize; size *= 2 {
		offsets = append(offsets, size)
	}
	return offsets
}

func validMeta(meta []byte) bool {
	sum := fnv.New64a()
	sum.Write(meta[:metaSize-8])
	return u32(meta, 0) == metaMagic && u32(meta, 4) == metaVersion && u64(meta, metaSize-8) == sum.Sum64()
}

// walk visits all keys in the order of their buckets.
func (t *tree) walk(visit visitLeaf) {
	t.page(t.root, bounds{}, 0, "", visit)
	if t.free != noFreelist {
		t.freelist()
	}
}

// err returns the damage of the file, or nil.
func (t *tree) err() error {
	if len(t.damages) == 0 {
		return nil
	}
	more := ""
	if t.stopped {
		more = ", and more"
	}
	return errors.New(strings.Join(t.damages, "; ") + more)
}

func (t *tree) damaged(id uint64, format string, a ...any) {
	if t.stopped = len(t.damages) == maxDamages; !t.stopped {
		t.damages = append(t.damages, fmt.Sprintf("page %d is damaged: %s", id, fmt.Sprintf(format, a...)))
	}
}

// bounds limit the keys of a page, from lower up to but without upper. Nil means that there
// is none.
type bounds struct{ lower, upper []byte }

func (b bounds) contain(key []byte) bool {
	return (b.lower == nil || bytes.Compare(key, b.lower) >= 0) && (b.upper == nil || bytes.Compare(key, b.upper) < 0)
}

// page walks through a page and those below it.
func (t *tree) page(id uint64, within bounds, depth int, bucket string, visit visitLeaf) {
	content, ok := t.read(id)
	if !ok || t.stopped {
		return
	}
	if depth == maxDepth {
		t.damaged(id, "it is %d levels deep", depth)
		return
	}
	t.elements(id, content, within, depth, bucket, visit)
}

// elements walks through a page that has been read, or one that is within another.
func (t *tree) elements(id uint64, content []byte, within bounds, depth int, bucket string, visit visitLeaf) {
	flags, count := u16(content, 8), int(u16(content, 10))
	if (flags != branchPage && flags != leafPage) || pageHeaderSize+count*elementSize > len(content) {
		t.damaged(id, "it has %d elements of type %#x", count, flags)
		return
	}
	keys, values, ok := t.split(id, content, flags == leafPage, count)
	if !ok {
		return
	}
	for i, key := range keys {
		if t.stopped {
			return
		}
		if !within.contain(key) || (i > 0 && bytes.Compare(keys[i-1], key) >= 0) {
			t.damaged(id, "its key %d is out of order", i)
			return
		}
		element := content[pageHeaderSize+i*elementSize:]
		switch {
		case flags == branchPage:
			below := bounds{key, within.upper}
			if i+1 < len(keys) {
				below.upper = keys[i+1]
			}
			t.page(u64(element, 8), below, depth+1, bucket, visit)
		case u32(element, 0) == 0:
			if err := visit(bucket, key, values[i]); err != nil {
				t.damaged(id, "%v", err)
			}
		case u32(element, 0) == bucketLeaf && bucket == "" && len(values[i]) >= bucketHeaderSize:
			t.bucket(id, values[i], depth+1, string(key), visit)
		default:
			t.damaged(id, "its element %d has type %#x", i, u32(element, 0))
		}
	}
}

// bucket walks through a bucket, which has a page, or is so small that it is in another.
func (t *tree) bucket(id uint64, header []byte, depth int, name string, visit visitLeaf) {
	t.buckets = append(t.buckets, name)
	inline := header[bucketHeaderSize:]
	switch root := u64(header, 0); {
	case root != 0:
		t.page(root, bounds{}, depth, name, visit)
	case len(inline) < pageHeaderSize || u16(inline, 8) != leafPage:
		t.damaged(id, "the bucket %q in it is not a page", name)
	default:
		t.elements(id, inline, bounds{}, depth, name, visit)
	}
}

// split returns the keys of a page and, of a leaf, their values. Bbolt writes them one
// right after the other, behind the elements.
func (t *tree) split(id uint64, content []byte, leaf bool, count int) (keys, values [][]byte, ok bool) {
	keys = make([][]byte, count)
	values = make([][]byte, count)
	end := uint64(pageHeaderSize + count*elementSize) //nolint:gosec // G115: count has 16 bits.
	for i := range count {
		offset := pageHeaderSize + i*elementSize
		element := content[offset:]
		begin, keySize, valueSize := uint64(u32(element, 0)), uint64(u32(element, 4)), uint64(0)
		if leaf {
			begin, keySize, valueSize = uint64(u32(element, 4)), uint64(u32(element, 8)), uint64(u32(element, 12))
		}
		begin += uint64(offset)
		if begin != end || begin+keySize+valueSize > uint64(len(content)) {
			t.damaged(id, "its element %d is not where it belongs", i)
			return nil, nil, false
		}
		end = begin + keySize + valueSize
		keys[i] = content[begin : begin+keySize]
		values[i] = content[begin+keySize : begin+keySize+valueSize]
	}
	return keys, values, true
}

// read returns a page with its overflow pages, if no other page refers to them.
func (t *tree) read(id uint64) ([]byte, bool) {
	header := make([]byte, pageHeaderSize)
	if id < firstPage || id >= t.end {
		t.damaged(id, "there is no such page, but another refers to it")
		return nil, false
	}
	if _, err := t.file.ReadAt(header, int64(id)*t.pageSize); err != nil { //nolint:gosec // G115: within the file.
		t.damaged(id, "%v", err)
		return nil, false
	}
	pages := uint64(u32(header, 12)) + 1
	switch {
	case u64(header, 0) != id:
		t.damaged(id, "it says that it is page %d", u64(header, 0))
		return nil, false
	case pages > t.end-id:
		t.damaged(id, "it goes on for %d pages, to beyond the end", pages)
		return nil, false
	case slices.Contains(t.used[id:id+pages], true):
		t.damaged(id, "more than one page refers to it")
		return nil, false
	}
	for i := range pages {
		t.used[id+i] = true
	}
	content := make([]byte, int64(pages)*t.pageSize)                        //nolint:gosec // G115: within the file.
	if _, err := t.file.ReadAt(content, int64(id)*t.pageSize); err != nil { //nolint:gosec // G115: within the file.
		t.damaged(id, "%v", err)
		return nil, false
	}
	return content, true
}

// freelist checks that no page in use is listed as free.
func (t *tree) freelist() {
	content, ok := t.read(t.free)
	if !ok {
		return
	}
	ids, count := content[pageHeaderSize:], uint64(u16(content, 10))
	if count == longFreelistCount {
		ids, count = ids[8:], u64(ids, 0)
	}
	if u16(content, 8) != freelistPage || count > uint64(len(ids)/8) {
		t.damaged(t.free, "it does not list the free pages")
		return
	}
	for i := range count {
		if id := u64(ids, int(8*i)); id < firstPage || id >= t.end || t.used[id] {
			t.damaged(t.free, "it lists page %d as free, which is in use", id)
			return
		}
	}
}

func u16(b []byte, at int) uint16 { return binary.NativeEndian.Uint16(b[at:]) }
func u32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
