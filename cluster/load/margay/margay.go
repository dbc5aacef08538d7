// SPDX-License-Identifier: Apache-2.0

// Package margay lets package load drive a Margay cluster, through the public client and REST client only; unless it is told
// to use a stream that is there, it makes one for the run, and refuses to leave it behind.
package margay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/wire/control"
)

// closeWithin bounds what is done about the cluster when a run is over.
const closeWithin = 10 * time.Second

// Config says where the cluster is and what kind of stream, or cache, to use.
type Config struct {
	// Context names brokers and control plane.
	Context control.Context
	// Address of the brokers in place of the context's, whose scheme decides the transport. May be empty.
	Address string
	// Token to show in place of the context's API key. May be empty.
	Token string
	// Stream, or cache, to use, whose settings stay what they are. Empty: one is made with the settings below, and deleted.
	Stream string
	// Publishers is how many there will be, so that all shards get messages. Default 1.
	Publishers int
	// Connections that the publishers share, as those of one program do. 0: each has its own.
	Connections int
	Shards      int    // default 1
	Fsync       string // always (default), interval or never
	Storage     string // disk (default) or memory
	// Ack is what publishes wait for: none, leader or quorum; empty for the stream's rule.
	Ack string
	// TTL of what is put; 0 for the cache's own.
	TTL time.Duration
	// OneAtATime publishes as a program does that waits for each answer: in the caller's goroutine, without futures. For
	// windows of one message.
	OneAtATime bool
	// BufferBytes of each publisher's client. It must hold the messages in flight. Default: the client's.
	BufferBytes int64
	// Options of the clients, behind all others.
	Options []client.Option
}

// System is a stream under load, or what a cache under load has in common with one.
type System struct {
	cfg    Config
	preset string
	name   string // TENANT/NAMESPACE/NAME
	api    *control.Client
	own    control.LogDocument // to be deleted; its name is empty when there is none
	shards int
	fsync  string
	ack    client.AckLevel

	mu     sync.Mutex
	shared map[connection]*client.Client
}

// connection is one that several publishers, or several subscriptions, share.
type connection struct {
	publishing bool
	number     int
}

var _ load.System = (*System)(nil)

// Open makes the stream, or finds it.
func Open(ctx context.Context, cfg Config) (*System, error) {
	return open(ctx, cfg, control.PresetStream)
}

func open(ctx context.Context, cfg Config, preset string) (*System, error) {
	s := &System{cfg: cfg, preset: preset, shared: map[connection]*client.Client{}}
	i := slices.Index([]string{"", control.AckNone, control.AckLeader, control.AckQuorum}, cfg.Ack)
	if i < 0 {
		return nil, fmt.Errorf("ack %q: want none, leader or quorum", cfg.Ack)
	}
	s.ack = []client.AckLevel{client.AckDefault, client.AckNone, client.AckLeader, client.AckQuorum}[i]
	if cfg.Stream != "" {
		return s, s.find(ctx)
	}
	return s, s.create(ctx)
}

func (s *System) find(ctx context.Context) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.Info(ctx, s.cfg.Stream)
	if err != nil {
		return err
	}
	s.name, s.shards = s.cfg.Stream, info.Shards
	return nil
}

func (s *System) create(ctx context.Context) error {
	cfg := s.cfg.Context.Client()
	cfg.Token = s.cfg.Token
	api, err := control.NewClient(cfg)
	if err != nil {
		return err
	}
	s.api, s.shards = api, max(1, s.cfg.Shards)
	spec := control.LogSpec{Name: "bench-" + randomName(), Shards: &s.shards}
	if s.cfg.Fsync != "" {
		spec.Fsync = &s.cfg.Fsync
	}
	if s.cfg.Storage != "" {
		spec.Storage = &s.cfg.Storage
	}
	tenant, namespace := s.cfg.Context.Tenant, s.cfg.Context.Namespace
	if tenant == "" {
		tenant, namespace = control.DefaultTenant, control.DefaultNamespace
	}
	if s.own, err = api.Logs(s.preset).Create(ctx, tenant, namespace, spec); err != nil {
		api.Close()
		return err
	}
	s.name, s.fsync = control.FullName(s.own.Tenant, s.own.Namespace, s.own.Name), s.own.Fsync
	return nil
}

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime ends the process when the system has no randomness
	return hex.EncodeToString(b[:])
}

// Stream is the name of the stream that is used, and Shards its shards.
func (s *System) Stream() string { return s.name }

// Shards are how many the stream has.
func (s *System) Shards() int { return s.shards }

func (s *System) connect(ctx context.Context) (*client.Client, error) {
	where := s.cfg.Context
	if s.cfg.Token != "" {
		where.APIKey = "" // with both, it would not be clear as whom
	}
	options := []client.Option{client.WithContext(where), client.WithAck(s.ack)}
	if s.cfg.Token != "" {
		options = append(options, client.WithToken(s.cfg.Token))
	}
	if s.cfg.BufferBytes > 0 {
		options = append(options, client.WithBufferBytes(s.cfg.BufferBytes))
	}
	return client.Connect(ctx, s.cfg.Address, append(options, s.cfg.Options...)...)
}

// Subscribe subscribes to all shards. Nothing is dropped on the way to a subscriber that is slow: it catches up.
func (s *System) Subscribe(ctx context.Context, o load.Subscription) (io.Closer, error) {
	c, err := s.sharedClient(ctx, connection{number: o.Connection})
	if err != nil {
		return nil, err
	}
	start := client.FromLatest()
	if o.Replay {
		start = client.FromEarliest()
	}
	sub, err := c.Subscribe(ctx, s.name, start, client.Overflow(client.PolicyCatchUp))
	if err != nil {
		return nil, err
	}
	r := &subscription{sub: sub}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.wg.Go(func() { r.read(ctx, o) })
	return r, nil
}

// sharedClient is the client of a connection, which lives until Close.
func (s *System) sharedClient(ctx context.Context, k connection) (*client.Client, error) {
	s.mu.Lock()
	c := s.shared[k]
	s.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	first := s.shared[k]
	if first == nil {
		s.shared[k] = c
	}
	s.mu.Unlock()
	if first != nil { // somebody was faster
		c.Close()
		return first, nil
	}
	return c, nil
}

type subscription struct {
	sub    *client.Subscription
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (r *subscription) read(ctx context.Context, o load.Subscription) {
	for rec, err := range r.sub.Records(ctx) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			o.Fail(err)
			return
		case rec.Gap != nil:
			o.Fail(fmt.Errorf("shard %d lost offsets %d to %d on the way here: %v", rec.Shard, rec.Gap.From, rec.Gap.To, rec.Gap.Reason))
			return
		}
		o.Each(rec.Value)
	}
}

// Close ends it.
func (r *subscription) Close() error {
	r.cancel()
	r.wg.Wait()
	r.sub.Close()
	return nil
}

// Keep lets Close leave the stream alone: for one whose node is gone.
func (s *System) Keep() { s.own = control.LogDocument{} }

// Close closes what is open and deletes the stream if it was made for the run.
func (s *System) Close() error {
	s.mu.Lock()
	open := s.shared
	s.shared = map[connection]*client.Client{}
	s.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	if s.api == nil {
		return nil
	}
	defer s.api.Close()
	if s.own.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := s.api.Logs(s.preset).Delete(ctx, s.own.Tenant, s.own.Namespace, s.own.Name, 0); err != nil {
		return errors.Join(fmt.Errorf("the %s %s that was made for the run is still there", s.preset, s.name), err)
	}
	s.own = control.LogDocument{}
	return nil
}
