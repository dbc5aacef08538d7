// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"margay.dev/cluster/load"
)

// viaCalls puts and gets by the methods of the KeyValue interface, as many at once as may be under way.
const viaCalls = "calls"

// kv is one bucket of one server.
type kv struct {
	*system
	bucket jetstream.KeyValue
	share  int // connections of all who make calls; 0 for one each
}

// chooseKVVia decides how to put or to get.
func chooseKVVia(via string, spec load.Spec) (string, error) {
	switch {
	case via == viaAuto && (spec.Workload == load.Get || spec.InFlight == 1):
		return viaCalls, nil
	case via == viaAuto:
		return viaAsync, nil
	case via == viaCalls, via == viaRaw, via == viaAsync && spec.Workload != load.Get:
		return via, nil
	}
	return "", fmt.Errorf("-via %q: want auto, calls or raw, or, to put, async", via)
}

func (s *system) openKV(ctx context.Context, history uint8, share int) (_ load.System, err error) {
	if s.nc, err = s.dial(); err != nil {
		return nil, err
	}
	s.server = s.nc.ConnectedServerVersion()
	if s.js, err = jetstream.New(s.nc); err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	k := &kv{system: s, share: share}
	conf := jetstream.KeyValueConfig{Bucket: s.place, History: history, Storage: jetstream.FileStorage, Replicas: 1}
	if k.bucket, err = s.js.CreateOrUpdateKeyValue(ctx, conf); err != nil {
		return nil, fmt.Errorf("create bucket: %w", err)
	}
	return load.Keyed(k), nil
}

func (k *kv) String() string {
	how := ", watch"
	if k.spec.Workload != load.Watch {
		how = ", " + string(k.spec.Workload) + " by " + k.via
	}
	return "nats-server " + k.server + ", JetStream KV" + how
}

func (k *kv) Close() error {
	var err error
	if k.bucket != nil && !k.keep {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		err = k.js.DeleteKeyValue(ctx, k.place)
	}
	k.keep = true // there is no stream beside it
	return errors.Join(err, k.system.Close())
}

// subject is where a key's values are published: what Put of the KeyValue interface does, and waits for.
func (k *kv) subject(key string) string { return "$KV." + k.place + "." + key }

// Putter publishes to the subjects of the keys in the ways that a stream is published to, or calls Put.
func (k *kv) Putter(ctx context.Context, i int, done load.Done) (load.Putter, error) {
	switch k.via {
	case viaAsync:
		p, err := k.newAsync(done)
		return &asyncPutter{p, k}, err
	case viaRaw:
		r, err := k.newRequests(done, stored)
		return &rawPutter{r, k}, err
	}
	return k.caller(ctx, i, done, func(bucket jetstream.KeyValue, key string, value []byte) error {
		_, err := bucket.Put(context.Background(), key, value) // it ends by itself
		return err
	})
}

type asyncPutter struct {
	*asyncPublisher
	k *kv
}

func (p *asyncPutter) Put(_ context.Context, key string, value []byte, at int64) error {
	return p.publish(p.k.subject(key), value, at)
}

type rawPutter struct {
	*requests
	k *kv
}

func (p *rawPutter) Put(_ context.Context, key string, value []byte, at int64) error {
	return p.request(p.k.subject(key), value, at)
}

// Getter calls Get, or sends what Get sends and takes the answers as they come: the server answers a connection in order.
func (k *kv) Getter(ctx context.Context, i int, done load.Done) (load.Getter, error) {
	if k.via == viaRaw {
		r, err := k.newRequests(done, k.value)
		return &rawGetter{r, k}, err
	}
	return k.caller(ctx, i, done, func(bucket jetstream.KeyValue, key string, _ []byte) error {
		e, err := bucket.Get(context.Background(), key) // it ends by itself
		if err == nil && len(e.Value()) != k.spec.Size {
			err = load.ValueError(key, len(e.Value()), k.spec.Size)
		}
		return err
	})
}

type rawGetter struct {
	*requests
	k *kv
}

func (g *rawGetter) Get(_ context.Context, key string, at int64) error {
	return g.request("$JS.API.DIRECT.GET.KV_"+g.k.place+"."+g.k.subject(key), nil, at)
}

// value takes an answer for a good one when it is a value of the run; others say in headers what went wrong.
func (k *kv) value(m *nats.Msg) error {
	if len(m.Data) != k.spec.Size {
		return fmt.Errorf("%w: %v", load.ValueError(k.place, len(m.Data), k.spec.Size), m.Header)
	}
	return nil
}

// caller makes calls.
type caller struct {
	nc    *nats.Conn // nil when others share it
	calls *load.Calls
}

func (k *kv) caller(ctx context.Context, i int, done load.Done, call func(bucket jetstream.KeyValue, key string, value []byte) error) (*caller, error) {
	c := &caller{}
	nc, err := k.dialed(i)
	if err != nil {
		return nil, err
	}
	if k.share == 0 {
		c.nc = nc
	}
	bucket, err := over(ctx, nc, k.place)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.calls = load.NewCalls(k.spec.InFlight, done, func(key string, value []byte) error { return call(bucket, key, value) })
	return c, nil
}

// dialed is the connection of client i.
func (k *kv) dialed(i int) (*nats.Conn, error) {
	if k.share > 0 {
		return k.connection(-1 - i%k.share)
	}
	return k.dial()
}

func over(ctx context.Context, nc *nats.Conn, name string) (jetstream.KeyValue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	bucket, err := js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("bucket: %w", err)
	}
	return bucket, nil
}

func (c *caller) Put(ctx context.Context, key string, value []byte, at int64) error {
	return c.calls.Do(ctx, key, value, at)
}

func (c *caller) Get(ctx context.Context, key string, at int64) error {
	return c.calls.Do(ctx, key, nil, at)
}

func (c *caller) Close() error {
	if c.nc != nil {
		c.nc.Close()
	}
	if c.calls != nil {
		c.calls.Close()
	}
	return nil
}

// Watch is Watch of the KeyValue interface, of updates only. Each is an ordered consumer of its own in the server.
func (k *kv) Watch(ctx context.Context, w load.Watcher) (io.Closer, error) {
	nc, err := k.connection(w.Connection)
	if err != nil {
		return nil, err
	}
	bucket, err := over(ctx, nc, k.place)
	if err != nil {
		return nil, err
	}
	what := w.Key
	if w.Prefix {
		what += ">"
	}
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	kw, err := bucket.Watch(watching, what, jetstream.UpdatesOnly())
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch: %w", err)
	}
	end := &once{fail: w.Fail}
	var reading sync.WaitGroup
	reading.Go(func() {
		for e := range kw.Updates() {
			if e != nil && e.Operation() == jetstream.KeyValuePut {
				w.Each(e.Value())
			}
		}
		end.failed(errClosed)
	})
	return closer(func() error {
		end.closed()
		err := kw.Stop()
		cancel()
		if err == nil {
			reading.Wait()
		}
		return nil // it has done its work; what is left of it ends with its connection
	}), nil
}
