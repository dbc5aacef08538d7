// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// KV is an adapter of a system that holds the newest value of each key. One value drives one running system, in a place of its
// own (a cache, a bucket, a prefix) that Close removes.
type KV interface {
	// Putter opens the putter of client i, over a connection of its own. It calls done for what Put took.
	Putter(ctx context.Context, i int, done Done) (Putter, error)
	// Getter opens the getter of client i, over a connection of its own. It calls done for what Get took.
	Getter(ctx context.Context, i int, done Done) (Getter, error)
	// Watch begins to watch. When it returns, every put from then on will be told of.
	Watch(ctx context.Context, w Watcher) (io.Closer, error)
	Close() error
}

// Putter is used by one goroutine, and held to what is said of Publisher.
type Putter interface {
	Put(ctx context.Context, key string, value []byte, at int64) error
	Close() error
}

// Getter is used by one goroutine, and held to what is said of Publisher. What it tells of as done has been read whole: an
// answer without a value, or with one of another size than the run's, has failed.
type Getter interface {
	Get(ctx context.Context, key string, at int64) error
	Close() error
}

// Watcher is one that watches.
type Watcher struct {
	// Index counts watchers from 0. Those with the same Connection share a connection.
	Index, Connection int
	// Key is the one key to watch, or, with Prefix, what the keys begin with.
	Key    string
	Prefix bool
	// Each is called for the value of every put, by one goroutine at a time. The bytes are the adapter's again when it returns.
	Each func(value []byte)
	// Fail is called once when nothing more will be told, and not because of Close.
	Fail func(err error)
}

// KeyPrefix is what all keys of a run begin with. It ends with a dot, at which systems may divide keys that divide them at all.
const KeyPrefix = "bench."

// Key is the key of this number, size bytes long.
func Key(n, size int) string { return fmt.Sprintf("%s%0*d", KeyPrefix, size-len(KeyPrefix), n) }

// Keyed makes a KV what Run takes, for the workloads put, get and watch.
func Keyed(kv KV) System { return keyed{kv} }

type keyed struct{ KV }

var (
	errNeedsKV     = errors.New("this adapter has no keys: put, get and watch need one that has")
	errNeedsStream = errors.New("this adapter has keys only, or queues: want put, get or watch of keys, work or handle of queues")
)

func (keyed) Publisher(context.Context, int, Done) (Publisher, error) { return nil, errNeedsStream }

func (keyed) Subscribe(context.Context, Subscription) (io.Closer, error) { return nil, errNeedsStream }

// String is the adapter's own, if it has one.
func (k keyed) String() string {
	if s, ok := k.KV.(fmt.Stringer); ok {
		return s.String()
	}
	return "a system with keys"
}

// ValueError is what an adapter tells of a get whose answer is not a value of the run.
func ValueError(key string, got, want int) error {
	return fmt.Errorf("%s: a value of %d bytes: want %d", key, got, want)
}
