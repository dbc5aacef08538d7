// SPDX-License-Identifier: Apache-2.0

package control

// The documents of each preset are those of a log under names of their own: what a stream, a cache and a queue differ in is
// their defaults, and which collection they are in.

// StreamSpec is the body that creates a stream. What is left out gets its default.
type StreamSpec LogSpec

// Log is the stream that the spec asks for in a namespace; see LogSpec.Log.
func (s *StreamSpec) Log(tenant, namespace string) (Log, []Problem) {
	return (*LogSpec)(s).Log(PresetStream, tenant, namespace)
}

// StreamPatch is the body that changes a stream: only what it names.
type StreamPatch LogPatch

// Stream is a stream as the API shows it.
type Stream LogDocument

// NewStream shows a log as a stream.
func NewStream(l *Log) Stream { return Stream(NewLogDocument(l)) }

// StreamList is one page of a listing, in order of name.
type StreamList struct {
	Items []Stream `json:"items"`
	Next  string   `json:"next,omitempty" doc:"Cursor of the next page; absent on the last"`
}

// CacheSpec is the body that creates a cache. What is left out gets its default.
type CacheSpec LogSpec

// Log is the cache that the spec asks for in a namespace; see LogSpec.Log.
func (s *CacheSpec) Log(tenant, namespace string) (Log, []Problem) {
	return (*LogSpec)(s).Log(PresetCache, tenant, namespace)
}

// CachePatch is the body that changes a cache: only what it names.
type CachePatch LogPatch

// Cache is a cache as the API shows it.
type Cache LogDocument

// NewCache shows a log as a cache.
func NewCache(l *Log) Cache { return Cache(NewLogDocument(l)) }

// CacheList is one page of a listing, in order of name.
type CacheList struct {
	Items []Cache `json:"items"`
	Next  string  `json:"next,omitempty" doc:"Cursor of the next page; absent on the last"`
}

// QueueSpec is the body that creates a queue. What is left out gets its default.
type QueueSpec LogSpec

// Log is the queue that the spec asks for in a namespace; see LogSpec.Log.
func (s *QueueSpec) Log(tenant, namespace string) (Log, []Problem) {
	return (*LogSpec)(s).Log(PresetQueue, tenant, namespace)
}

// QueuePatch is the body that changes a queue: only what it names.
type QueuePatch LogPatch

// Queue is a queue as the API shows it.
type Queue LogDocument

// NewQueue shows a log as a queue.
func NewQueue(l *Log) Queue { return Queue(NewLogDocument(l)) }

// QueueList is one page of a listing, in order of name.
type QueueList struct {
	Items []Queue `json:"items"`
	Next  string  `json:"next,omitempty" doc:"Cursor of the next page; absent on the last"`
}
