// SPDX-License-Identifier: Apache-2.0

// Package fakebroker is a small scripted broker for the client's own tests, over real QUIC or TLS; it keeps its logs in memory,
// listens on loopback only, and refuses to be clever: what a test wants to go wrong, the test says.
package fakebroker

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"maps"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
	"margay.dev/wire/session/sessiontest"
)

// Broker serves the logs it was given. Its hooks may be changed at any time with Script.
type Broker struct {
	tb     testing.TB
	server *tls.Config
	// CA is what a client verifies the broker by.
	CA   []byte
	addr string // host:port

	mu      sync.Mutex
	changed *sync.Cond
	logs    map[string]*Log
	byID    map[batch.LogID]*Log
	script  Script
	seen    []Publish
	auths   []string
	conns   map[session.Conn]*session.Lane
	starts  []wire.Subscribe
	opened  int
	asker   string // whose lookup was the last
	gets    []int
	watches []wire.Watch
	queueState

	run *running
}

// queueState is what the broker has of groups.
type queueState struct {
	groups    map[batch.LogID]map[string]*Group
	lastGroup uint64
	lanes     []*consumer
	consumes  []wire.Consume
	settles   []wire.Settle
	flows     []wire.Flow
	extends   []wire.Extend
	commands  []wire.GroupCommand
}

// running is one life of the broker between Start and Stop.
type running struct {
	pc     io.Closer // what it listens on
	ln     session.Listener
	ctx    context.Context //nolint:containedctx // ends with the life
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Script is what goes differently from a healthy broker.
type Script struct {
	// Auth decides about a token and when it expires. Nil: any, for an hour.
	Auth func(token string) (time.Time, error)
	// Publish is asked about every publish, in the order of its lane, before anything is done.
	Publish func(p Publish) Verdict
	// Subscribe may refuse a subscription.
	Subscribe func(s *wire.Subscribe) error
	// Lookup may refuse a lookup.
	Lookup func(name string) error
	// Get may refuse a Get, or hold it.
	Get func(g *wire.Get) error
	// List is called before a List is answered.
	List func()
	// Watch may refuse a Watch.
	Watch func(w *wire.Watch) error
	// Consume may refuse a consume lane, Command a command of a group.
	Consume func(c *wire.Consume) error
	Command func(c *wire.GroupCommand) error
	// Settle is asked about every settlement before anything is done. Hold delays what is done, too.
	Settle func(s *wire.Settle) Verdict
	// MaxEntries bounds the entries of an answer.
	MaxEntries int
	// DefaultTTL of every log, in microseconds.
	DefaultTTL uint64
	// Corrupt spoils a delivery.
	Corrupt func(deliver []byte)
	// Noise is sent as it is before each delivery.
	Noise []byte
}

// Publish is a publish as it arrived.
type Publish struct {
	// From is the connection it came over.
	From                       string
	Shard                      uint32
	Producer, Sequence, Before uint64
	Count, Size                int
	TimeoutMs                  uint32
	Ack                        wire.Ack
	Values                     []string
	Conditions                 []wire.Condition
	DedupID                    string
}

// Verdict says what becomes of a publish. The zero value stores and answers it.
type Verdict struct {
	// Err is the answer; with Apply it is stored nevertheless.
	Err   *code.Error
	Apply bool
	// Hold delays this answer, and with it those behind it, until it is closed.
	Hold <-chan struct{}
	// Early does what is asked before the Hold, of a settlement.
	Early bool
	// Kill ends the connection instead of answering.
	Kill bool
	// Twice answers twice.
	Twice bool
	// Before is sent as it is before the answer.
	Before []byte
}

// Log is one stream.
type Log struct {
	ID     batch.LogID
	Name   string
	Shards []*Shard
}

// Shard is a shard's stored batches.
type Shard struct {
	Batches    []batch.Batch
	Generation uint64
	Earliest   uint64
	next       uint64 // offset
	producers  map[uint64]*producer
	ids        map[string]batch.Batch // the first record of each dedup id
	cuts       map[uint64]uint64      // where a generation was cut
}

type producer struct {
	last   uint64
	stored map[uint64]batch.Batch
	sums   map[uint64][]int64
}

// New starts a broker that ends with the test.
func New(tb testing.TB) *Broker {
	tb.Helper()
	b := &Broker{
		tb: tb, logs: map[string]*Log{}, byID: map[batch.LogID]*Log{}, conns: map[session.Conn]*session.Lane{},
		addr: "127.0.0.1:0",
	}
	b.changed = sync.NewCond(&b.mu)
	b.server, b.CA = identity(tb)
	b.Start()
	tb.Cleanup(b.Stop)
	return b
}

func identity(tb testing.TB) (*tls.Config, []byte) {
	tb.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, pub, key)
	if err != nil {
		tb.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13,
	}, ca
}

// Address is the broker's, with the scheme of the transport that is tested, the same in every life.
func (b *Broker) Address() string { return strings.TrimPrefix(sessiontest.URL(b.addr), "margay://") }

// Start begins to listen, on the port of the last life.
func (b *Broker) Start() {
	pc, ln, err := b.listen()
	if err != nil {
		b.tb.Fatal(err)
	}
	r := &running{pc: pc, ln: ln}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	b.run = r
	r.wg.Go(func() {
		for {
			c, err := ln.Accept(r.ctx)
			if err != nil {
				return
			}
			r.wg.Go(func() { b.serve(r, c) })
		}
	})
}

// listen serves the transport that is tested.
func (b *Broker) listen() (socket io.Closer, _ session.Listener, _ error) {
	var lc net.ListenConfig
	if sessiontest.Transport() == "tls" {
		ln, err := lc.Listen(context.Background(), "tcp", b.addr)
		if err != nil {
			return nil, nil, err
		}
		b.addr = ln.Addr().String()
		return ln, session.ListenTLS(ln, b.server, session.Config{}), nil
	}
	pc, err := lc.ListenPacket(context.Background(), "udp", b.addr)
	if err != nil {
		return nil, nil, err
	}
	b.addr = pc.LocalAddr().String()
	ln, err := session.ListenQUIC(pc, b.server, session.Config{ResetKey: &[32]byte{1}})
	return pc, ln, err
}

// Stop ends this life; stopping again does nothing.
func (b *Broker) Stop() {
	r := b.run
	if r == nil {
		return
	}
	b.run = nil
	r.cancel()
	_ = r.ln.Close()
	b.wake()
	r.wg.Wait()
	_ = r.pc.Close()
}

// Script changes what goes wrong.
func (b *Broker) Script(change func(s *Script)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.script)
}

func (b *Broker) current() Script {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.script
}

// AddLog makes a stream, replacing one of the same name.
func (b *Broker) AddLog(name string, shards int) *Log {
	l := &Log{ID: batch.NewLogID(), Name: name}
	for range shards {
		l.Shards = append(l.Shards, &Shard{Generation: 1, producers: map[uint64]*producer{}, ids: map[string]batch.Batch{}, cuts: map[uint64]uint64{}})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.logs[name]; old != nil {
		delete(b.byID, old.ID)
	}
	b.logs[name], b.byID[l.ID] = l, l
	return l
}

// Change changes a log under the broker's lock and wakes its subscriptions.
func (b *Broker) Change(f func()) {
	b.mu.Lock()
	f()
	b.mu.Unlock()
	b.wake()
}

// wake makes every subscription look again. Under the lock: one that has looked and not begun to wait must not miss it.
func (b *Broker) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed.Broadcast()
}

// Cut cuts a shard at an offset, as a lossy failover does.
func (s *Shard) Cut(at uint64) {
	for len(s.Batches) > 0 && s.Batches[len(s.Batches)-1].NextOffset() > at {
		s.Batches = s.Batches[:len(s.Batches)-1]
	}
	s.next = at
	s.cuts[s.Generation] = at
	s.Generation++
}

// Forget forgets every producer.
func (s *Shard) Forget() { s.producers = map[uint64]*producer{} }

// Values returns the values stored in a shard, in order.
func (b *Broker) Values(l *Log, shard int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, bt := range l.Shards[shard].Batches {
		out = append(out, values(bt)...)
	}
	return out
}

func values(bt batch.Batch) []string {
	var out []string
	r := bt.Records()
	for {
		var rec batch.Record
		ok, err := r.Next(&rec)
		if err != nil || !ok {
			return out
		}
		out = append(out, string(rec.Value))
	}
}

// Publishes returns every publish that arrived.
func (b *Broker) Publishes() []Publish {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Publish(nil), b.seen...)
}

// Tokens returns every token that was shown.
func (b *Broker) Tokens() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.auths...)
}

// Subscribes returns every subscription that was asked for.
func (b *Broker) Subscribes() []wire.Subscribe {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]wire.Subscribe(nil), b.starts...)
}

// Connections returns how many connections were ever authenticated.
func (b *Broker) Connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// LastAsker returns the connection that the last lookup came over.
func (b *Broker) LastAsker() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asker
}

// KillConnections ends every connection.
func (b *Broker) KillConnections() {
	for c := range b.live() {
		_ = c.Close(code.Unavailable, "killed by the test")
	}
}

// Goodbye says goodbye on every connection.
func (b *Broker) Goodbye() {
	for _, lane := range b.live() {
		_ = lane.SendFrame(0, &wire.Goodbye{Code: code.ShuttingDown, Message: "the test says so"})
	}
}

func (b *Broker) live() map[session.Conn]*session.Lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.conns)
}
