// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeKV is a system with keys in memory whose behavior a test decides.
type fakeKV struct {
	fake // its publishers answer and count; what they are handed is a value
	// told says how often watcher i is told of the nth put, and how much later than it is acknowledged.
	told func(i int, n int64) (times int, late time.Duration)
	// lose has gets answer that these keys have no value.
	lose map[string]bool

	kv       sync.Mutex
	values   map[string][]byte
	watchers []Watcher
	keys     []string // of puts, in order
	gets     []string
	puts     int64
}

type fakePutter struct {
	*fakePublisher
	f *fakeKV
}

func (f *fakeKV) Putter(ctx context.Context, i int, done Done) (Putter, error) {
	p, err := f.Publisher(ctx, i, done)
	return &fakePutter{p.(*fakePublisher), f}, err
}

func (p *fakePutter) Put(ctx context.Context, key string, value []byte, at int64) error {
	f, kept := p.f, slices.Clone(value)
	f.kv.Lock()
	if f.values == nil {
		f.values = map[string][]byte{}
	}
	f.values[key], f.keys, f.puts = kept, append(f.keys, key), f.puts+1
	n, watchers := f.puts, f.watchers
	f.kv.Unlock()
	err := p.Publish(ctx, value, at)
	for i, w := range watchers {
		if w.Key != key && (!w.Prefix || !strings.HasPrefix(key, w.Key)) {
			continue
		}
		times, late := 1, time.Duration(0)
		if f.told != nil {
			times, late = f.told(i, n)
		}
		f.all.Go(func() {
			time.Sleep(late)
			for range times {
				w.Each(kept)
			}
		})
	}
	return err
}

type fakeGetter struct {
	*fakePublisher
	f *fakeKV
}

func (f *fakeKV) Getter(ctx context.Context, i int, done Done) (Getter, error) {
	g := &fakeGetter{f: f}
	p, err := f.Publisher(ctx, i, done)
	g.fakePublisher = p.(*fakePublisher)
	return g, err
}

func (g *fakeGetter) Get(ctx context.Context, key string, at int64) error {
	g.f.kv.Lock()
	g.f.gets = append(g.f.gets, key)
	value, there := g.f.values[key]
	lost := g.f.lose[key] || !there
	g.f.kv.Unlock()
	if lost {
		g.done(at, 1, ValueError(key, 0, len(value)))
		return nil
	}
	return g.Publish(ctx, value, at)
}

func (f *fakeKV) Watch(_ context.Context, w Watcher) (io.Closer, error) {
	f.kv.Lock()
	defer f.kv.Unlock()
	each := w.Each
	turn := make(chan struct{}, 1) // one goroutine at a time; time passes while others wait, as it does not before a mutex
	w.Each = func(value []byte) {
		turn <- struct{}{}
		each(value)
		<-turn
	}
	f.watchers = append(f.watchers, w)
	return io.NopCloser(nil), nil
}

// driveKV runs the fake system in the bubble of the test.
func driveKV(t *testing.T, f *fakeKV, spec Spec, o Options) (*Result, error) {
	t.Helper()
	o.sleeper = newTimer
	res, err := Run(t.Context(), Keyed(f), spec, o)
	if closed := f.Close(); closed != nil {
		t.Error(closed)
	}
	if f.opened != f.closed {
		t.Errorf("%d clients opened, %d closed", f.opened, f.closed)
	}
	return res, err
}
