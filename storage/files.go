// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"container/list"
	"sync"
	"sync/atomic"

	"margay.dev/storage/vfs"
)

// handle is an open file that is closed when its last user lets go.
type handle struct {
	file vfs.File
	refs atomic.Int32
}

func newHandle(f vfs.File) *handle {
	h := &handle{file: f}
	h.refs.Store(1)
	return h
}

// retain needs a reference that is already held, by the caller or under the lock that guards one.
func (h *handle) retain() *handle {
	h.refs.Add(1)
	return h
}

func (h *handle) release() {
	if h.refs.Add(-1) == 0 {
		_ = h.file.Close() // what was written through it has been flushed, or its log says that it was not
	}
}

// Files keeps sealed segments open between reads, a bounded number for all logs that share it, and lends the buffers in
// which several batches are joined into one write. Descriptors of a process:
//
//	one per log that has been appended to or opened (its newest segment)
//	+ the limit given to NewFiles
//	+ one per read of a sealed segment under way
//
// A dropped segment is let go at once, so its space returns when the last read of it ends.
type Files struct {
	limit   int
	mu      sync.Mutex
	open    map[fileKey]*list.Element
	recent  list.List // of *openFile, most recently used first
	forgot  uint64    // counts what was let go because its file changes or goes
	buffers sync.Pool // of *[]byte
	places  places
}

type fileKey struct {
	log  *Disk
	base uint64
}

type openFile struct {
	key fileKey
	h   *handle
}

// DefaultOpenFiles is how many sealed segments a log keeps open when it shares no Files.
const DefaultOpenFiles = 2

// NewFiles returns a cache of at most limit open sealed segments.
func NewFiles(limit int) *Files {
	return &Files{limit: max(0, limit), open: make(map[fileKey]*list.Element)}
}

// acquire returns a referenced handle, opened outside the lock when it is not there.
func (f *Files) acquire(key fileKey, open func() (vfs.File, error)) (*handle, error) {
	f.mu.Lock()
	if e, ok := f.open[key]; ok {
		f.recent.MoveToFront(e)
		h := e.Value.(*openFile).h.retain()
		f.mu.Unlock()
		return h, nil
	}
	forgot := f.forgot
	f.mu.Unlock()
	file, err := open()
	if err != nil {
		return nil, err
	}
	h := newHandle(file)
	f.add(key, h.retain(), &forgot)
	return h, nil
}

// add takes over one reference. since, when not nil, is the count of when the file was opened: if anything was let go
// since then it may be this one, under whose name there is or will be another file.
func (f *Files) add(key fileKey, h *handle, since *uint64) {
	var out []*handle
	f.mu.Lock()
	if _, ok := f.open[key]; ok || since != nil && *since != f.forgot {
		out = append(out, h)
	} else {
		f.open[key] = f.recent.PushFront(&openFile{key, h})
		for f.recent.Len() > f.limit {
			out = append(out, f.unlink(f.recent.Back()))
		}
	}
	f.mu.Unlock()
	for _, h := range out {
		h.release()
	}
}

// forget lets go of one segment, because its file is about to change or to go.
func (f *Files) forget(key fileKey) {
	f.mu.Lock()
	f.forgot++
	var h *handle
	if e, ok := f.open[key]; ok {
		h = f.unlink(e)
	}
	f.mu.Unlock()
	if h != nil {
		h.release()
	}
}

// forgetLog lets go of everything of one log.
func (f *Files) forgetLog(log *Disk) {
	f.places.forget(log)
	f.mu.Lock()
	f.forgot++
	var out []*handle
	for key, e := range f.open {
		if key.log == log {
			out = append(out, f.unlink(e))
		}
	}
	f.mu.Unlock()
	for _, h := range out {
		h.release()
	}
}

func (f *Files) unlink(e *list.Element) *handle {
	o := f.recent.Remove(e).(*openFile)
	delete(f.open, o.key)
	return o.h
}

// buffer lends an empty buffer for about n bytes; giveBack returns it.
func (f *Files) buffer(n int64) *[]byte {
	if p, ok := f.buffers.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, 0, min(n, joinBytes))
	return &p
}

func (f *Files) giveBack(p *[]byte) {
	if cap(*p) <= joinBytes {
		*p = (*p)[:0]
		f.buffers.Put(p)
	}
}

// Open is how many sealed segments are open.
func (f *Files) Open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recent.Len()
}
