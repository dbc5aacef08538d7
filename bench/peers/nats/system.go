// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"margay.dev/bench/peers/peer"
	"margay.dev/cluster/load"
)

// The ways to publish.
const (
	viaAuto  = "auto"  // core for fanout, sync for one message in flight, async otherwise
	viaSync  = "sync"  // JetStream, each message waits for its answer
	viaAsync = "async" // JetStream, an answer for each message, many under way
	viaRaw   = "raw"   // the same without the jetstream package
	viaFast  = "fast"  // JetStream's fast ingest, an answer for many
	viaCore  = "core"  // no JetStream and no answer
)

// The ways to replay.
const (
	consumeOrdered = "ordered" // the jetstream package's ordered consumer, which pulls
	consumePush    = "push"    // the server pushes all it has, no acknowledgment, no flow control
)

// closeWithin bounds what is done about the server when a run is over.
const closeWithin = time.Minute

// system is one stream of one server.
type system struct {
	addr    *url.URL
	spec    load.Spec
	via     string
	place   string // stream and subject
	keep    bool
	consume string // how to replay
	pull    int    // messages that a consumer asks for at a time
	// retention is how long the stream keeps messages: whatever becomes of them, but for a queue that says otherwise.
	retention jetstream.RetentionPolicy
	nc        *nats.Conn
	js        jetstream.JetStream
	server    string // its version

	mu    sync.Mutex
	conns map[int]*nats.Conn // of subscribers, by connection
}

func drive(fs *flag.FlagSet) func(context.Context, string, load.Spec) (load.System, error) {
	via := fs.String("via", viaAuto, "how to publish: sync, async, raw, fast (JetStream), core, or auto; how to put or get: calls, async (put), raw, or auto")
	place := fs.String("place", "", "stream to use and to keep (default: one for the run, removed after it)")
	consume := fs.String("consume", consumeOrdered, "how to replay: ordered (the jetstream package's consumer) or push")
	pull := fs.Int("pull", 2000, "messages that a consumer asks for at a time")
	retention := fs.String("retention", "limits", "with work and handle: whether messages stay (limits) or go when they are acknowledged (workqueue)")
	share := fs.Int("share", 0, "connections that all who put or get by calls share (default: each has its own)")
	history := fs.Int("history", 64, "values that a bucket keeps of each key, 1 to 64")
	return func(ctx context.Context, addr string, spec load.Spec) (load.System, error) {
		u, err := url.Parse(addr)
		if err != nil {
			return nil, fmt.Errorf("address: %w", err)
		}
		s := &system{
			addr: u, spec: spec, via: *via, place: *place, keep: *place != "", consume: *consume, pull: *pull,
			conns: make(map[int]*nats.Conn),
		}
		if s.place == "" {
			s.place = fmt.Sprintf("load-%d", time.Now().UnixNano())
		}
		if *consume != consumeOrdered && *consume != consumePush {
			return nil, fmt.Errorf("-consume %q: want ordered or push", *consume)
		}
		if spec.Workload.HasKeys() {
			return s.keyed(ctx, *via, *history, *share)
		}
		if s.via, err = chooseVia(*via, spec); err != nil {
			return nil, err
		}
		if spec.Workload.HasQueue() {
			sys, err := s.openQueue(ctx, *retention)
			if err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return sys, nil
		}
		if err := s.open(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return s, nil
	}
}

// keyed opens a bucket.
func (s *system) keyed(ctx context.Context, via string, history, share int) (sys load.System, err error) {
	if history < 1 || history > 64 {
		return nil, fmt.Errorf("-history %d: want 1 to 64", history)
	}
	if s.via, err = chooseKVVia(via, s.spec); err != nil {
		return nil, err
	}
	if sys, err = s.openKV(ctx, uint8(history), share); err != nil {
		s.keep = true // nothing was made
		return nil, errors.Join(err, s.Close())
	}
	return sys, nil
}

// chooseVia decides how to publish, and refuses what would not be what it says.
func chooseVia(via string, spec load.Spec) (string, error) {
	switch via {
	case viaAuto:
		switch {
		case spec.Workload == load.Fanout:
			return viaCore, nil
		case spec.InFlight == 1:
			return viaSync, nil
		}
		return viaAsync, nil
	case viaSync:
		if spec.InFlight > 1 {
			return "", errors.New("-via sync has one message in flight for each client")
		}
	case viaCore:
		if spec.Workload != load.Fanout {
			return "", errors.New("-via core has no acknowledgment: it can only be measured with -workload fanout")
		}
	case viaAsync, viaRaw, viaFast:
	default:
		return "", fmt.Errorf("-via %q: want auto, sync, async, raw, fast or core", via)
	}
	return via, nil
}

func (s *system) open(ctx context.Context) (err error) {
	if s.nc, err = s.dial(); err != nil {
		return err
	}
	s.server = s.nc.ConnectedServerVersion()
	if s.via == viaCore {
		return nil
	}
	if s.js, err = jetstream.New(s.nc); err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}
	_, err = s.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:              s.place,
		Subjects:          []string{s.place},
		Storage:           jetstream.FileStorage,
		Replicas:          1,
		Retention:         s.retention,
		AllowBatchPublish: true, // for -via fast; costs nothing otherwise
	})
	if err != nil {
		return fmt.Errorf("create stream: %w", err)
	}
	return nil
}

// dial makes a connection that ends for good when it ends: a run that went on after a reconnect would hide lost messages.
func (s *system) dial(more ...nats.Option) (*nats.Conn, error) {
	opts := []nats.Option{nats.NoReconnect(), nats.Timeout(30 * time.Second), nats.PingInterval(5 * time.Minute)}
	if s.addr.Scheme == "tls" {
		conf, err := peer.ClientTLS(s.addr.Query().Get("ca"))
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.Secure(conf))
	}
	nc, err := nats.Connect(s.addr.Scheme+"://"+s.addr.Host, append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", s.addr.Host, err)
	}
	return nc, nil
}

func (s *system) String() string {
	name := "nats-server " + s.server + ", "
	switch {
	case s.via == viaCore:
		name += "core"
	case s.spec.Workload == load.Sub:
		name += "JetStream " + s.consume + " consumer"
	default:
		name += "JetStream " + s.via
	}
	if s.addr.Scheme == "tls" {
		name += ", TLS"
	}
	return name
}

func (s *system) Close() error {
	var err error
	if s.js != nil && !s.keep {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		err = s.js.DeleteStream(ctx, s.place)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nc := range s.conns {
		nc.Close()
	}
	clear(s.conns)
	if s.nc != nil {
		s.nc.Close()
	}
	return err
}

// closer makes an io.Closer of a function.
type closer func() error

func (c closer) Close() error { return c() }

var _ io.Closer = closer(nil)
